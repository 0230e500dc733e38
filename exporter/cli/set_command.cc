// pulse set: changes settings of the node's processes while they run.
#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/control/control_client.h"
#include "exporter/control/control_socket.h"
#include "exporter/control/live_values.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace set_command {

absl::Duration lasting;
absl::Duration timeout = absl::Seconds(3);
std::string job_id;                   // NOLINT(cert-err58-cpp)
std::vector<std::string> given_pids;  // NOLINT(cert-err58-cpp)
bool is_all = false;

constexpr char kHelp[] =
    R"(usage: pulse set NAME=VALUE [NAME=VALUE ...] [--for=DURATION] [--job-id=ID | --pid=PID ... | --all]

Changes settings of running processes on this node. `pulse settings` shows them. The names are those of
the variables NCCL_PULSE_*:

  TIMED_LAUNCHES_PER_SECOND   1 to 1000000: timed launches per second and GPU; each delays its GPU by about 5 us.
                              one-in-N: one launch in N, whatever the rate; one-in-1: all
  NETWORK_WINDOW              0.01 to 100, off: percentage of the time in which network steps are observed;
                              not in processes that started with off or 100
  HANG_SECONDS                1 to 86400: time without progress that counts as a hang, for the job of the process.
                              The shortest of a job counts. Of an agent: for all its jobs, and its only setting
  LOG_LEVEL                   off, warn, info

NAME=default restores what the process started with. All other settings are read once, at the start of a process.

{flags}

Only a process' own user and root may do this, and only on the node. For processes in a container with its own
network, run it there.

Examples:
  pulse set TIMED_LAUNCHES_PER_SECOND=1000 --for=10m
  pulse set HANG_SECONDS=60 --job-id=my-run

Exit status: 0 all have changed; 1 bad usage; 2 no process to ask, or none has changed; 4 some haven't.
)";

// Finds the sockets to use without --pid and --all: the sockets of the requested job, or of the
// only job. False, with the jobs in `error`, if there are several. `answers` gets processes of
// unknown job that did not answer. `known` gets the existing jobs if the requested one is not among
// them.
bool FindJob(const ControlQuestion& question, std::vector<std::string>* names,
             std::vector<ControlAnswer>* answers, std::set<std::string>* known,
             std::string* error) {
  ControlQuestion who;
  who.commands = {MakeMessage(MessageType::kListSettings)};
  who.patience = question.patience;
  std::map<std::pair<uid_t, std::string>, int> jobs;
  for (ControlAnswer& answer : AskProcesses(who)) {
    if (!answer.problem.empty()) {
      answers->push_back(std::move(answer));
      continue;
    }
    std::string owner = answer.replies.front().text;
    if (!job_id.empty() && owner != OwnerWords(job_id)) {
      known->insert(std::move(owner));
      continue;
    }
    names->push_back(answer.name);
    if (owner != kAgentOwner) ++jobs[{answer.user, owner}];
  }
  if (jobs.size() <= 1 || !job_id.empty()) return true;
  std::vector<std::string> each;
  for (const auto& [job, processes] : jobs) {
    each.push_back(absl::StrCat(job.second, " of user ", job.first, " (",
                                Plural(static_cast<std::size_t>(processes), "process"), ")"));
  }
  *error = absl::StrCat("this would change ", jobs.size(), " jobs: ", absl::StrJoin(each, ", "),
                        "; choose with --job-id=ID or --pid=PID, or change all with --all");
  return false;
}

int Print(const std::vector<ControlAnswer>& answers) {
  int done = 0;
  int failed = 0;
  for (const ControlAnswer& answer : answers) {
    for (const ControlReply& reply : answer.replies) {
      if (reply.type == MessageType::kNotHere) continue;  // an agent measures nothing
      const bool is_done = reply.type == MessageType::kDone;
      (is_done ? done : failed) += 1;
      std::fprintf(is_done ? stdout : stderr, "%d: %s%s\n", static_cast<int>(answer.pid),
                   is_done ? "" : "not set: ", reply.text.c_str());
    }
    if (answer.problem.empty()) continue;
    ++failed;
    std::fprintf(stderr, "%d: %s\n", static_cast<int>(answer.pid), answer.problem.c_str());
  }
  if (done == 0) {
    if (failed == 0) Fail(0, "no process here has this setting; `pulse settings` lists processes");
    return kUnreachable;
  }
  return failed == 0 ? 0 : kIncomplete;
}

// Returns "did you mean HANG_SECONDS? " for HANG_SECOND=5, or "".
std::string MeantInstead(std::string_view argument) {
  constexpr std::string_view kPrefix = "NCCL_PULSE_";
  std::string name = absl::AsciiStrToUpper(argument.substr(0, argument.find('=')));
  const bool has_prefix = absl::StartsWith(name, kPrefix);
  if (has_prefix) name.erase(0, kPrefix.size());
  std::vector<std::string> names;
  for (int i = 0; i < kLiveSettings; ++i) {
    names.emplace_back(LiveSettingName(static_cast<LiveSetting>(i)));
  }
  const std::string nearest = Nearest(name, names);
  if (nearest.empty() || nearest == name) return "";
  return absl::StrCat("did you mean ", has_prefix ? kPrefix : "", nearest, "? ");
}

FlagTable Flags() {
  return {
      {"--for", &lasting, "DURATION",
       "revert after this time, at most 168h (default: keep until the process ends)",
       "100ms to 168h"},
      {"--job-id", &job_id, "ID", "processes with this value of the label job_id, and no agent"},
      {"--pid", &given_pids, "PID", "this process, any number of times"},
      {"--all", &is_all, "",
       "all processes. Without these three flags, all must belong to one user and one job"},
      {"--timeout", &timeout, "DURATION",
       "processes that don't answer in time are listed, and keep their settings", "100ms to 5m"}};
}

int Run(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    return Fail(kUsageError, "set needs NAME=VALUE; `pulse help set` lists the names");
  }
  ControlQuestion question;
  question.patience = absl::ToChronoMilliseconds(timeout);
  std::set<LiveSetting> named;
  for (const std::string& argument : arguments) {
    LiveCommand command;
    std::string error;
    if (!ParseLiveCommand(argument, &command, &error)) {
      return Fail(kUsageError, absl::StrCat(MeantInstead(argument), error));
    }
    if (!named.insert(command.setting).second) {
      return Fail(kUsageError, absl::StrCat(LiveSettingName(command.setting), " is given twice"));
    }
    // Formatted again, so that it fits into a message.
    question.commands.push_back(
        MakeSet(absl::StrCat(LiveSettingName(command.setting), "=",
                             command.is_default ? "default"
                                                : SpellLiveValue(command.setting, command.value)),
                absl::ToChronoMilliseconds(lasting)));
  }
  for (const std::string& text : given_pids) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(text, &pid) || pid <= 0) {
      return Fail(kUsageError, absl::StrCat("--pid=", text.substr(0, 32), ": not a process id"));
    }
    question.pids.push_back(pid);
  }
  if ((job_id.empty() ? 0 : 1) + (given_pids.empty() ? 0 : 1) + (is_all ? 1 : 0) > 1) {
    return Fail(kUsageError, "--job-id, --pid and --all exclude each other");
  }
  std::vector<ControlAnswer> answers;
  std::set<std::string> known;
  bool is_anybody_asked = true;
  if (given_pids.empty() && !is_all) {
    std::string error;
    if (!FindJob(question, &question.names, &answers, &known, &error)) {
      return Fail(kUsageError, error);
    }
    is_anybody_asked = !question.names.empty();
  }
  if (is_anybody_asked) {
    for (ControlAnswer& answer : AskProcesses(question)) answers.push_back(std::move(answer));
  }
  if (answers.empty()) {
    return Fail(
        kUnreachable,
        absl::StrCat("no process with NCCL Pulse ", job_id.empty() ? "of this user" : "of this job",
                     " runs on this node (in this network namespace)",
                     known.empty() ? "" : "; known: ", absl::StrJoin(known, ", ")));
  }
  return Print(answers);
}

}  // namespace set_command

const Command kSetCommand = {"set", "change settings of running processes on this node",
                             set_command::kHelp, set_command::Flags, set_command::Run};

}  // namespace nccl_pulse
