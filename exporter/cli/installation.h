// Finds the files that belong to the `pulse` program: beside it when installed, in Bazel's runfiles
// when run from the build tree.
//
//   plugin   <program's folder>/libnccl-profiler-pulse.so, <program's folder>/../lib/..., from
//            the Debian package <program's folder>/../lib/<architecture>-linux-gnu/..., from the
//            .rpm <program's folder>/../lib64/...
//   simulated GPU   <program's folder>/libpulse-simulated-gpu.so, or
//                   <program's folder>/../lib/nccl-pulse/libpulse-simulated-gpu.so
//
// Thread: any. Cost: a few system calls.
#ifndef EXPORTER_CLI_INSTALLATION_H_
#define EXPORTER_CLI_INSTALLATION_H_

#include <string>

namespace nccl_pulse {

// Returns the absolute path of the plugin library; "" if not found.
std::string FindPluginLibrary();
// Error of a command that needs the plugin library but does not find it.
inline constexpr char kNoPluginLibrary[] =
    "libnccl-profiler-pulse.so is neither beside this program nor in ../lib; reinstall NCCL Pulse";

// Returns the path of the simulated GPU's driver (simulation/driver.cc); "" if not found.
std::string FindSimulatedGpu();

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_INSTALLATION_H_
