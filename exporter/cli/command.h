// Command is one subcommand of the `pulse` program.
//
// The file of each subcommand (<name>_command.cc; env is in path_command.cc) defines its Command and
// flags. A new one also needs a declaration below, a line in pulse_main.cc, its file in BUILD.bazel
// and its name in deploy/package/BUILD.bazel; then regenerate docs/cli.md. Flags are read before
// `run` is called.
//
// Thread: main thread only.
#ifndef EXPORTER_CLI_COMMAND_H_
#define EXPORTER_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "exporter/cli/flags/flags.h"

namespace nccl_pulse {

// Exit statuses (docs/cli.md#exit-status). 6 and more differ between commands.
enum ExitStatus {
  kDone = 0,
  kUsageError = 1,
  kUnreachable = 2,  // no endpoint or process answers
  kHangFound = 3,
  kIncomplete = 4,  // an endpoint, process or rank is missing
  kNotWritten = 5,  // output or file
  kCrashed = 7,     // `pulse demo`: a rank failed
};

// Prints `text` as an error and returns `status`. Replaces control characters: the text may come
// from an endpoint or Prometheus.
int Fail(int status, const std::string& text);

struct Command {
  const char* name;
  const char* summary;  // one line, for `pulse --help`
  const char* help;     // for `pulse NAME --help`; "{flags}" stands for the rows of `flags`
  FlagTable (*flags)();
  // `arguments` without program, subcommand and flags. Returns the exit status.
  int (*run)(const std::vector<std::string>& arguments);
  // Flags on how to connect, which `pulse help connect` lists instead of the command's own help.
  // Null: none.
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

// Returns the completions of the last of `words`, for bash, zsh and fish. `words`: all words from
// after "pulse" to the cursor; the last may be "". The shells' scripts (deploy/package/completions)
// run `pulse complete WORDS`. Returns nothing for file names, addresses and numbers.
std::vector<std::string> Completions(const std::vector<const Command*>& commands,
                                     const std::vector<std::string>& words);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_COMMAND_H_
