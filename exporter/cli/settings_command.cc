// pulse settings: prints the settings that `pulse set` can change, for each process of this node.
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/cli/settings_table.h"

namespace nccl_pulse {
namespace {

constexpr int kUsageError = 1;

absl::Duration timeout = absl::Seconds(5);

constexpr char kHelp[] =
    R"(usage: pulse settings [--timeout=DURATION]

Shows the settings that `pulse set` can change, for each process of this user on this node (root: of all users): the
value, and where it comes from.

  --timeout=DURATION  processes that don't answer in time are listed (default 5s)

Examples:
  pulse settings

Exit status: 0 shown; 1 bad usage; 2 no process; 4 some don't answer.
)";

std::vector<Flag> Flags() { return {{"--timeout", &timeout}}; }

int Run(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    return Fail(kUsageError, "settings takes no argument: it asks the processes of this node");
  }
  if (timeout < absl::Milliseconds(100) || timeout > absl::Minutes(5)) {
    return Fail(kUsageError, "--timeout is not between 100ms and 5m");
  }
  return ShowSettings(timeout);
}

}  // namespace

const Command kSettingsCommand = {"settings", "show the settings of running processes on this node",
                                  kHelp, Flags, Run};

}  // namespace nccl_pulse
