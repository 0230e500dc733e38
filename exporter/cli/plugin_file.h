// WhyNoPlugin checks whether a file is a profiler plugin that NCCL on this machine could load,
// without running its code.
//
// Thread: any. Cost: reads the whole file.
#ifndef EXPORTER_CLI_PLUGIN_FILE_H_
#define EXPORTER_CLI_PLUGIN_FILE_H_

#include <string>

namespace nccl_pulse {

// Returns "" if NCCL could load the file; else the reason, such as "is not a shared library".
std::string WhyNoPlugin(const std::string& path);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_PLUGIN_FILE_H_
