// pulse settings: prints the settings that `pulse set` can change, for each process of this node.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "exporter/cli/command.h"
#include "exporter/control/control_client.h"

namespace nccl_pulse {
namespace settings_command {

absl::Duration timeout = absl::Seconds(5);

constexpr char kHelp[] =
    R"(usage: pulse settings [--timeout=DURATION]

Shows the settings that `pulse set` can change, for each process of this user on this node (root: of all users): the
value, and where it comes from.

{flags}

Examples:
  pulse settings

Exit status: 0 shown; 1 bad usage; 2 no process; 4 some don't answer.
)";

// Returns "set UID SECONDS" in readable form.
std::string OriginWords(std::string_view origin, absl::Time now) {
  const std::vector<std::string_view> parts = absl::StrSplit(origin, ' ');
  int64_t until = 0;
  if (parts.size() != 3 || parts[0] != "set" || !absl::SimpleAtoi(parts[2], &until)) {
    return std::string(origin);
  }
  const std::string by = absl::StrCat(" by uid ", parts[1]);
  if (until == 0) return absl::StrCat("set", by, ", until the process ends");
  const absl::Time end = absl::FromUnixSeconds(until);
  const bool is_near = end - now < absl::Hours(20);
  return absl::StrCat(
      "set until ",
      absl::FormatTime(is_near ? "%H:%M:%S UTC" : "%Y-%m-%d %H:%M UTC", end, absl::UTCTimeZone()),
      by);
}

// Returns one line per setting and process: value and origin. Texts of processes are already
// printable (HandoverMessage::Text).
std::string SettingsTable(const std::vector<ControlAnswer>& answers, absl::Time now) {
  std::string text = absl::StrFormat("%-8s %-26s %-8s %s\n", "PID", "SETTING", "VALUE", "FROM");
  for (const ControlAnswer& answer : answers) {
    if (!answer.problem.empty()) {
      absl::StrAppend(&text, absl::StrFormat("%-8d ", answer.pid), answer.problem, "\n");
      continue;
    }
    for (const ControlReply& reply : answer.replies) {
      if (reply.type != MessageType::kDone) {
        absl::StrAppend(&text, absl::StrFormat("%-8d ", answer.pid), reply.text, "\n");
      }
      for (const std::string& line : reply.lines) {
        const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 2));
        if (parts.size() != 3) continue;
        absl::StrAppend(&text, absl::StrFormat("%-8d %-26s %-8s %s\n", answer.pid, parts[0],
                                               parts[1], OriginWords(parts[2], now)));
      }
    }
  }
  return text;
}

FlagTable Flags() {
  return {{"--timeout", &timeout, "DURATION", "processes that don't answer in time are listed",
           "100ms to 5m"}};
}

int Run(const std::vector<std::string>& arguments) {
  if (!arguments.empty()) {
    return Fail(kUsageError, "settings takes no argument: it asks the processes of this node");
  }
  ControlQuestion question;
  question.commands = {MakeMessage(MessageType::kListSettings)};
  question.patience = absl::ToChronoMilliseconds(timeout);
  const std::vector<ControlAnswer> answers = AskProcesses(question);
  if (answers.empty()) {
    return Fail(kUnreachable,
                "no process with NCCL Pulse of this user runs on this node (in this network "
                "namespace)");
  }
  std::fputs(SettingsTable(answers, absl::Now()).c_str(), stdout);
  bool is_any_silent = false;
  for (const ControlAnswer& answer : answers) is_any_silent |= !answer.problem.empty();
  return is_any_silent ? kIncomplete : 0;
}

}  // namespace settings_command

const Command kSettingsCommand = {"settings", "show the settings of running processes on this node",
                                  settings_command::kHelp, settings_command::Flags,
                                  settings_command::Run};

}  // namespace nccl_pulse
