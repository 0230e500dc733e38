// The `pulse` program: finds the subcommand, parses its flags, runs it.
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/flags/parse.h"
#include "exporter/cli/command.h"
#include "plugin/runtime/version.h"

namespace nccl_pulse {
namespace {

constexpr int kUsageError = 1;

const Command* const kCommands[] = {&kStatusCommand, &kDiagnoseCommand, &kAgentCommand,
                                    &kDemoCommand,   &kInstallCommand,  &kReplayCommand};

void PrintUsage(FILE* out) {
  std::fprintf(out, "NCCL Pulse: always-on metrics for NCCL.\n\nusage: pulse COMMAND [flags]\n\n");
  for (const Command* command : kCommands) {
    std::fprintf(out, "  %-10s %s\n", command->name, command->summary);
  }
  std::fprintf(out, "\n`pulse COMMAND --help` says more. `pulse --version` prints the version.\n");
}

bool IsHelp(std::string_view argument) {
  return argument == "--help" || argument == "-h" || argument == "-help";
}

// absl knows --web_config alone; everybody writes --web-config.
void SpellForAbsl(char* argument) {
  if (std::strncmp(argument, "--", 2) != 0) return;
  for (char* c = argument + 2; *c != '\0' && *c != '='; ++c) {
    if (*c == '-') *c = '_';
  }
}

int Main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (IsHelp(name) || name == "help") {
    PrintUsage(stdout);
    return 0;
  }
  if (name == "--version" || name == "version") {
    std::printf("pulse %s\n", kVersion);
    return 0;
  }
  for (const Command* command : kCommands) {
    if (name != command->name) continue;
    for (int i = 2; i < argc; ++i) {
      if (!IsHelp(argv[i])) continue;
      std::fputs(command->help, stdout);
      return 0;
    }
    for (int i = 2; i < argc && std::strcmp(argv[i], "--") != 0; ++i) SpellForAbsl(argv[i]);
    // The subcommand takes the place of the program's name; a wrong flag ends the program here,
    // with status 1 and a message.
    std::vector<char*> given(argv + 1, argv + argc);
    if (command->take != nullptr) command->take(&given);
    std::vector<char*> arguments =
        absl::ParseCommandLine(static_cast<int>(given.size()), given.data());
    arguments.erase(arguments.begin());
    return command->run(arguments);
  }
  if (!name.empty()) std::fprintf(stderr, "pulse: no command \"%s\"\n", argv[1]);
  PrintUsage(stderr);
  return kUsageError;
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
