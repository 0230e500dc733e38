// The plugin's version, shown by pages, messages and packages.
#ifndef EXPORTER_BASE_VERSION_H_
#define EXPORTER_BASE_VERSION_H_

#include <string>

namespace nccl_pulse {

inline constexpr char kVersion[] = "0.1.0";

// Returns kVersion and, if tools/release built this program, the commit: "0.1.0+0123456789ab".
std::string BuildVersion();

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_VERSION_H_
