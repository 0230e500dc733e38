// Where the files that belong to the `pulse` program are: beside it when installed, in Bazel's
// runfiles when run from the build tree.
//
//   plugin   <program's folder>/libnccl-profiler-pulse.so, <program's folder>/../lib/... or, from
//            the Debian package, <program's folder>/../lib/<architecture>-linux-gnu/...
//   simulated GPU   <program's folder>/libpulse-simulated-gpu.so, or
//                   <program's folder>/../lib/nccl-pulse/libpulse-simulated-gpu.so
//   traces   <program's folder>/../share/nccl-pulse/traces/<name>
//
// Thread: any. Cost: a few system calls.
#ifndef EXPORTER_CLI_INSTALLATION_H_
#define EXPORTER_CLI_INSTALLATION_H_

#include <string>

namespace nccl_pulse {

// Path of the plugin library; "" when it is nowhere.
std::string FindPluginLibrary();

// Path of the simulated GPU's driver (simulation/driver.cc); "" when it is nowhere.
std::string FindSimulatedGpu();

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_INSTALLATION_H_
