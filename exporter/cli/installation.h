// Where the files that belong to the `pulse` program are: beside it when installed, in Bazel's
// runfiles when run from the build tree.
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

// Absolute path of the plugin library; "" when it is nowhere.
std::string FindPluginLibrary();
// Why a command stops without it.
inline constexpr char kNoPluginLibrary[] =
    "libnccl-profiler-pulse.so is neither beside this program nor in ../lib; reinstall NCCL Pulse";

// Path of the simulated GPU's driver (simulation/driver.cc); "" when it is nowhere.
std::string FindSimulatedGpu();

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_INSTALLATION_H_
