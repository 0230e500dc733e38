// Command is one subcommand of the `pulse` program.
//
// Each has its own file (<name>_command.cc), which defines a Command and its flags. A new one also
// needs a declaration below, a line in pulse_main.cc, and its file in two lists of BUILD.bazel and
// in those of deploy/package/BUILD.bazel. Then print docs/cli.md. Flags are read before `run` is
// called.
//
// Thread: main thread only.
#ifndef EXPORTER_CLI_COMMAND_H_
#define EXPORTER_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "exporter/cli/flags/flags.h"

namespace nccl_pulse {

struct Command {
  const char* name;
  const char* summary;  // one line, for `pulse --help`
  const char* help;     // for `pulse NAME --help`
  std::vector<Flag> (*flags)();
  // `arguments` without program, subcommand and flags. Returns the exit status.
  int (*run)(const std::vector<std::string>& arguments);
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

// For `pulse help` only: no flags, no `run`.
extern const Command kConnectTopic;

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_COMMAND_H_
