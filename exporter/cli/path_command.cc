// pulse path and pulse env: where the plugin is, for NCCL_PROFILER_PLUGIN.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "exporter/cli/command.h"
#include "exporter/cli/installation.h"

namespace nccl_pulse {
namespace path_command {

constexpr char kPathHelp[] =
    R"(usage: pulse path

Prints the absolute path of this installation's plugin, the value for NCCL_PROFILER_PLUGIN.

Examples:
  NCCL_PROFILER_PLUGIN=$(pulse path) torchrun train.py

Exit status: 0 printed; 1 bad usage; 2 the plugin is not installed beside this program.
)";

constexpr char kEnvHelp[] =
    R"help(usage: pulse env

Prints an export of NCCL_PROFILER_PLUGIN, with the path of this installation's plugin, for sh, bash and zsh.

Examples:
  eval "$(pulse env)"

Exit status: 0 printed; 1 bad usage; 2 the plugin is not installed beside this program.
)help";

FlagTable Flags() { return {}; }

int RunPath(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return Fail(kUsageError, "path takes no argument");
  const std::string library = FindPluginLibrary();
  if (library.empty()) return Fail(kUnreachable, kNoPluginLibrary);
  std::printf("%s\n", library.c_str());
  return 0;
}

int RunEnv(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return Fail(kUsageError, "env takes no argument");
  const std::string library = FindPluginLibrary();
  if (library.empty()) return Fail(kUnreachable, kNoPluginLibrary);
  // In single quotes, a quote is the only special character.
  std::printf("export NCCL_PROFILER_PLUGIN='%s'\n",
              absl::StrReplaceAll(library, {{"'", R"('\'')"}}).c_str());
  return 0;
}

}  // namespace path_command

const Command kPathCommand = {"path", "print the plugin's path", path_command::kPathHelp,
                              path_command::Flags, path_command::RunPath};
const Command kEnvCommand = {"env", "print the export that switches the plugin on",
                             path_command::kEnvHelp, path_command::Flags, path_command::RunEnv};

}  // namespace nccl_pulse
