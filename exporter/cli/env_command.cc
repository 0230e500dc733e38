// pulse env: prints the line of shell that switches the plugin on.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "exporter/cli/command.h"
#include "exporter/cli/installation.h"

namespace nccl_pulse {
namespace {

constexpr char kHelp[] =
    R"help(usage: pulse env

Prints an export of NCCL_PROFILER_PLUGIN, with the path of this installation's plugin, for sh, bash and zsh.

Examples:
  eval "$(pulse env)"

Exit status: 0 printed; 1 bad usage; 2 the plugin is not installed beside this program.
)help";

FlagTable Flags() { return {}; }

int Run(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return Fail(kUsageError, "env takes no argument");
  const std::string library = FindPluginLibrary();
  if (library.empty()) return Fail(kUnreachable, kNoPluginLibrary);
  // In single quotes, a quote is the only special character.
  std::printf("export NCCL_PROFILER_PLUGIN='%s'\n",
              absl::StrReplaceAll(library, {{"'", R"('\'')"}}).c_str());
  return 0;
}

}  // namespace

const Command kEnvCommand = {"env", "print the export that switches the plugin on", kHelp, Flags,
                             Run};

}  // namespace nccl_pulse
