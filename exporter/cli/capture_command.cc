// pulse capture: saves what endpoints and this host know about a job, as a folder or a .tar.gz.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "exporter/capture/capture.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/cli/service.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/fleet/job_report.h"
#include "exporter/outside/ras_listeners.h"

namespace nccl_pulse {
namespace capture_command {

std::string out, stack_command;  // NOLINT(cert-err58-cpp)
std::string format = "bundle";   // NOLINT(cert-err58-cpp)
absl::Duration stack_timeout = absl::Seconds(15);
absl::Duration time_limit = absl::Seconds(60);

constexpr char kHelp[] =
    R"(usage: pulse capture [HOST:PORT ...] [--out=FOLDER | --out=FILE.tar.gz] [flags]

Saves what is known of a job that hangs, before it ends: the verdict, the last calls of all ranks, metrics,
settings and, on request, stacks of the suspects. missing.txt lists what couldn't be collected, and why. The
job isn't modified.

Addresses of endpoints, TLS and passwords: `pulse help connect`.

{flags}

Examples:
  pulse capture node-1 node-2 --out=hang.tar.gz
  pulse capture --stack-command='py-spy dump --pid {pid}'

Exit status: 0 written; 1 bad usage; 2 no endpoint answers; 4 written, but incomplete: calls of live ranks are
missing, an endpoint didn't answer, or no endpoint knows a process; 5 couldn't be written, and nothing is left of
it. What is in it: docs/debug-a-hang.md.
)";

// On failure returns false and sets `error`.
bool FindEndpoints(const JobFilter& filter, FleetQuestion* question, std::string* error) {
  if (!AddFromDirectories(filter, question, error)) return false;
  return DefaultToThisHost(question, error);
}

// Returns the kind of missing data in a line, for counting: "nccl_log.txt" for
// "processes/17/nccl_log.txt: why", "stacks" for "stacks: why", "last calls of ended communicator".
std::string WhatIsMissing(const std::string& line) {
  constexpr std::string_view kCommunicator = " communicator ";
  std::string what = line.substr(0, line.find(": "));
  if (const std::size_t at = what.find(kCommunicator); at != what.npos) {
    return what.substr(0, at + kCommunicator.size() - 1);
  }
  if (!absl::EndsWith(what, ".txt") && !absl::EndsWith(what, ".json")) return what;
  return what.substr(what.rfind('/') + 1);  // npos + 1 is 0
}

// Returns "Missing (missing.txt has the reasons): 4 x nccl_log.txt, stacks" as a line, or "".
std::string MissingWords(const std::vector<std::string>& missing) {
  constexpr std::size_t kMostNamed = 6;
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& line : missing) {
    const std::string what = WhatIsMissing(line);
    const auto same = std::find_if(counts.begin(), counts.end(),
                                   [&what](const auto& each) { return each.first == what; });
    if (same != counts.end()) {
      ++same->second;
    } else {
      counts.emplace_back(what, 1);
    }
  }
  if (counts.empty()) return "";
  std::string text = "Missing (missing.txt has the reasons): ";
  for (std::size_t i = 0; i < counts.size() && i < kMostNamed; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ",
                    counts[i].second == 1 ? "" : absl::StrCat(counts[i].second, " x "),
                    counts[i].first);
  }
  return absl::StrCat(text, counts.size() > kMostNamed ? ", and more\n" : "\n");
}

FlagTable Flags() {
  return Joined(
      {{{"--out", &out, "PATH",
         "the folder to make, or the file if it ends in .tar.gz; it must not exist (default: "
         "nccl-pulse-capture-TIME in the current folder)"},
        {"--format", &format, "bundle|flight-recorder",
         "bundle: everything, human-readable; flight-recorder: one file per rank, for PyTorch's "
         "torchfrtrace --prefix nccl_trace_rank_ FOLDER"},
        {"--stack-command", &stack_command, "COMMAND",
         "run by a shell for each suspect on this host; {pid} is its process: "
         "--stack-command='py-spy dump --pid {pid}'"},
        {"--stack-timeout", &stack_timeout, "DURATION", "limit for each such program",
         "100ms to 10m"},
        {"--time-limit", &time_limit, "DURATION",
         "limit for everything after the verdict: half of it for endpoints, the rest for "
         "programs",
         "1s to 1h"}},
       JobFlags(),
       RasFlags()});
}

int Run(const std::vector<std::string>& arguments) {
  std::string error;
  if (!AddAddresses(arguments, "addresses to --targets", &error)) return Fail(kUsageError, error);
  CaptureOptions options;
  options.only_flight_recorder_dumps = format == "flight-recorder";
  options.stack_command = stack_command;
  if (!options.stack_command.empty() && !absl::StrContains(options.stack_command, "{pid}")) {
    return Fail(kUsageError, "--stack-command needs {pid}, the process whose stack to print");
  }
  options.program_patience = absl::ToChronoMilliseconds(stack_timeout);
  options.time_limit = absl::ToChronoMilliseconds(time_limit);
  options.look.hang_after = HangAfter();
  std::string path = out;
  if (path.empty()) {
    path = absl::StrCat("nccl-pulse-capture-",
                        absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()));
  }
  FleetQuestion question;
  if (!ReadFilter(&options.look.filter, &error) || !ReadFleetFlags(&question, &error) ||
      !outside::ReadRasChoice(fleet_flags.ras, fleet_flags.enter_namespaces, &options.ras,
                              &error)) {
    return Fail(kUsageError, error);
  }
  // Before querying endpoints: a hang may not last long.
  if (!Bundle::IsPossible(path, &error)) return Fail(kNotWritten, error);
  if (!FindEndpoints(options.look.filter, &question, &error)) {
    return Fail(IsDirectoryNamed() ? kUnreachable : kUsageError, error);
  }
  options.look.client = question.client;
  options.look.client.stop = StopOnSignal();
  options.on_busy = [is_said = false]() mutable {
    if (std::exchange(is_said, true)) return;
    Fail(0, "endpoints are busy: waiting for the calls of live ranks. Ctrl-C writes what is there");
  };
  const Capture capture = CaptureJob(question.endpoints, options);
  if (capture.look.heard == 0) {
    for (const std::string& each : capture.missing) Fail(0, each);
    Fail(0, "no endpoint answers; nothing is written");
    return FailUnheard(kUnreachable, question.is_nobody_here);
  }
  if (!capture.bundle.Write(path, &error)) return Fail(kNotWritten, error);
  std::fputs(JobText(capture.look).c_str(), stdout);
  std::printf(
      "\n%s: %zu files; %s of %s\n", path.c_str(), capture.bundle.size(),
      options.only_flight_recorder_dumps ? "dumps" : "last calls",
      Plural(capture.sources, options.only_flight_recorder_dumps ? "rank" : "process").c_str());
  std::fputs(MissingWords(capture.missing).c_str(), stdout);
  if (capture.look.set.processes.empty() && capture.look.set.ended.empty()) {
    return Fail(kIncomplete,
                options.look.filter.job_id.empty() && !options.look.filter.comm_id
                    ? "no endpoint knows a process; was the job started with NCCL_PROFILER_PLUGIN?"
                    : "no process matches --job-id or --comm");
  }
  return FailIncomplete(kIncomplete, capture.missing_live,
                        question.endpoints.size() - capture.look.heard);
}

}  // namespace capture_command

const Command kCaptureCommand = {"capture",
                                 "save what is known of a job that hangs",
                                 capture_command::kHelp,
                                 capture_command::Flags,
                                 capture_command::Run,
                                 ConnectFlags};

}  // namespace nccl_pulse
