// Command is one subcommand of the `pulse` program.
//
// Each has a file (<name>_command.cc; env is in path_command.cc), which defines a Command and its
// flags. A new one also needs a declaration below, a line in pulse_main.cc, its file in BUILD.bazel
// and its name in deploy/package/BUILD.bazel. Then print docs/cli.md. Flags are read before `run`
// is called.
//
// Thread: main thread only.
#ifndef EXPORTER_CLI_COMMAND_H_
#define EXPORTER_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "exporter/cli/flags/flags.h"

namespace nccl_pulse {

// Exit statuses (docs/cli.md#exit-status).
enum ExitStatus {
  kDone = 0,
  kUsageError = 1,
  kUnreachable = 2,
  kHangFound = 3,
  kIncomplete = 4,
  kNotWritten = 5,
  kCrashed = 7,
};

// Prints `text` as an error and returns `status`. Escapes control characters: the text may come
// from an endpoint or Prometheus.
int Fail(int status, const std::string& text);

struct Command {
  const char* name;
  const char* summary;  // one line, for `pulse --help`
  const char* help;     // for `pulse NAME --help`; "{flags}" stands for the rows of `flags`
  FlagTable (*flags)();
  // `arguments` without program, subcommand and flags. Returns the exit status.
  int (*run)(const std::vector<std::string>& arguments);
  // Flags that `pulse help connect` explains. Null: none.
  FlagTable (*connect)() = nullptr;
};

extern const Command kAgentCommand;
extern const Command kCaptureCommand;
extern const Command kDemoCommand;
extern const Command kDiagnoseCommand;
extern const Command kEnvCommand;
extern const Command kInstallCommand;
extern const Command kPathCommand;
extern const Command kSetCommand;
extern const Command kSettingsCommand;
extern const Command kStatusCommand;
extern const Command kTraceCommand;
extern const Command kWatchCommand;

// For `pulse help` only: no `run`.
extern const Command kConnectTopic;

// Returns all flags of the command.
FlagTable AllFlags(const Command& command);

// Returns the text of `pulse help NAME`.
std::string HelpText(const Command& command);

// Returns what bash, zsh and fish offer for the last of `words`, which may be "": the words after
// "pulse", up to the cursor. deploy/package/completions runs `pulse complete WORDS`. Returns nothing
// for file names, addresses and numbers.
std::vector<std::string> Completions(const std::vector<const Command*>& commands,
                                     const std::vector<std::string>& words);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_COMMAND_H_
