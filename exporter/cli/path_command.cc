// pulse path: prints the path of the plugin, for NCCL_PROFILER_PLUGIN.
#include <cstdio>
#include <string>
#include <vector>

#include "exporter/cli/command.h"
#include "exporter/cli/installation.h"

namespace nccl_pulse {
namespace {

constexpr char kHelp[] =
    R"(usage: pulse path

Prints the absolute path of this installation's plugin, the value for NCCL_PROFILER_PLUGIN.

Examples:
  NCCL_PROFILER_PLUGIN=$(pulse path) torchrun train.py

Exit status: 0 printed; 1 bad usage; 2 the plugin is not installed beside this program.
)";

FlagTable Flags() { return {}; }

int Run(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return Fail(kUsageError, "path takes no argument");
  const std::string library = FindPluginLibrary();
  if (library.empty()) return Fail(kUnreachable, kNoPluginLibrary);
  std::printf("%s\n", library.c_str());
  return 0;
}

}  // namespace

const Command kPathCommand = {"path", "print the plugin's path", kHelp, Flags, Run};

}  // namespace nccl_pulse
