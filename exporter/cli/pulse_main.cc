// The `pulse` program: finds the subcommand, parses its flags, runs it.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/parse.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flag_check.h"
#include "plugin/runtime/version.h"

namespace nccl_pulse {
namespace {

constexpr int kUsageError = 1;

const Command* const kCommands[] = {&kStatusCommand,  &kDiagnoseCommand, &kWatchCommand,
                                    &kCaptureCommand, &kTraceCommand,    &kSetCommand,
                                    &kAgentCommand,   &kDemoCommand,     &kInstallCommand};

void PrintUsage(FILE* out) {
  std::fprintf(out,
               "NCCL Pulse: Prometheus metrics of every NCCL operation, and which rank the others "
               "wait for.\n\nusage: pulse COMMAND [flags]\n\n");
  for (const Command* command : kCommands) {
    std::fprintf(out, "  %-10s %s\n", command->name, command->summary);
  }
  std::fputs(R"(
To see it without a GPU:   pulse demo
For a job of yours:        export NCCL_PROFILER_PLUGIN=pulse   (or the path of libnccl-profiler-pulse.so)
While the job runs:        pulse status, http://localhost:9410/ in a browser, or curl localhost:9410/metrics

`pulse help COMMAND` says more. `pulse --version` prints the version.
)",
             out);
}

const Command* Find(std::string_view name) {
  for (const Command* command : kCommands) {
    if (name == command->name) return command;
  }
  return nullptr;
}

int NoSuchCommand(const char* name) {
  std::vector<std::string> names = {"help"};
  for (const Command* command : kCommands) names.emplace_back(command->name);
  const std::string nearest = Nearest(name, names);
  std::fprintf(stderr, "pulse: no command \"%s\"%s\n", name,
               nearest.empty() ? "" : ("; did you mean \"" + nearest + "\"?").c_str());
  PrintUsage(stderr);
  return kUsageError;
}

bool IsHelp(std::string_view argument) {
  return argument == "--help" || argument == "-h" || argument == "-help";
}

// absl knows only --web_config; people write --web-config.
void SpellForAbsl(char* argument) {
  if (std::strncmp(argument, "--", 2) != 0) return;
  for (char* c = argument + 2; *c != '\0' && *c != '='; ++c) {
    if (*c == '-') *c = '_';
  }
}

// What is wrong with the flags has already been printed.
bool HasRightFlags(const Command& command, const std::vector<std::string_view>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--") return true;
    const std::string_view next = i + 1 < arguments.size() ? arguments[i + 1] : "";
    const std::string problem = CheckFlag(argument, next, command.name, command.help);
    if (problem.empty()) continue;
    std::fprintf(stderr, "pulse: %s\n`pulse help %s` says more.\n", problem.c_str(), command.name);
    return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const bool asks_for_help = IsHelp(name) || name == "help";
  if (name.empty() || (asks_for_help && argc == 2)) {
    PrintUsage(stdout);
    return 0;
  }
  if (name == "--version" || name == "version") {
    std::printf("pulse %s\n", kVersion);
    return 0;
  }
  const char* wanted = asks_for_help ? argv[2] : argv[1];
  if (asks_for_help && (std::strcmp(wanted, "help") == 0 || std::strcmp(wanted, "version") == 0)) {
    PrintUsage(stdout);
    return 0;
  }
  const Command* command = Find(wanted);
  if (command == nullptr) return NoSuchCommand(wanted);
  const std::vector<std::string_view> arguments(argv + 2, argv + argc);
  if (asks_for_help || std::any_of(arguments.begin(), arguments.end(), IsHelp)) {
    std::fputs(command->help, stdout);
    return 0;
  }
  if (!HasRightFlags(*command, arguments)) return kUsageError;
  for (int i = 2; i < argc && std::strcmp(argv[i], "--") != 0; ++i) SpellForAbsl(argv[i]);
  // The subcommand takes the place of the program's name. A wrong value of a flag ends the program
  // here, with status 1 and a message.
  std::vector<char*> given(argv + 1, argv + argc);
  if (command->take != nullptr) command->take(&given);
  std::vector<char*> rest = absl::ParseCommandLine(static_cast<int>(given.size()), given.data());
  rest.erase(rest.begin());
  // OpenSSL writes to sockets with write(2): an endpoint that closes its connection must not end the
  // program. The demo prints for good, and ends with who reads it.
  if (command != &kDemoCommand) std::signal(SIGPIPE, SIG_IGN);
  // A limit on the size of files is an error like a full disk: an agent serves on, and nothing is
  // left of what could not be written.
  std::signal(SIGXFSZ, SIG_IGN);
  return command->run(rest);
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
