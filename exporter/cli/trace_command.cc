// pulse trace: a timeline of a job's calls for ui.perfetto.dev, from a running job or a capture.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "exporter/base/error_text.h"
#include "exporter/base/files.h"
#include "exporter/cli/closer_look.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/cli/service.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/timeline/call_poller.h"
#include "exporter/timeline/observation.h"
#include "exporter/timeline/timeline.h"

namespace nccl_pulse {
namespace trace_command {

// An endpoint's CPU time per call on a page of calls (exporter/exposition/json/calls_json.h), and
// the default number of calls per rank.
constexpr double kSecondsPerCall = 1.5e-6;
constexpr double kCallsOfRank = 256;

absl::Duration duration = absl::Seconds(5);
std::optional<int> asked_every;
std::string out, from;  // NOLINT(cert-err58-cpp)

constexpr char kHelp[] =
    R"(usage: pulse trace [HOST:PORT ...] [--duration=DURATION] [--out=FILE] [flags]
       pulse trace --from=CAPTURE [--out=FILE]

Draws a timeline of a job's NCCL calls for https://ui.perfetto.dev (Open trace file; the file stays on your
machine): calls, durations, work that hasn't ended, missing calls, waits and verdicts, per rank and
communicator, with arrows between ranks. Without --every the job isn't modified. The overhead is printed first.

Addresses of endpoints, TLS and passwords: `pulse help connect`.

{flags}

Examples:
  pulse trace --duration=5s --out=job.pftrace
  pulse trace node-1 node-2 --duration=10s
  pulse trace --from=hang.tar.gz

Exit status: 0 written; 1 bad usage; 2 no endpoint answers, or the capture can't be read; 4 written, but
incomplete: calls of live ranks are missing, or an endpoint didn't answer; 5 couldn't be written, and nothing is
left of it. What tracks mean: docs/debug-a-slow-job.md.
)";

void PrintClocks(const Observation& seen, std::FILE* said) {
  for (std::size_t i = 0; i < seen.endpoints.size() && i < seen.clocks.size(); ++i) {
    std::fprintf(said, "  clock of %s: %s\n", seen.endpoints[i].c_str(),
                 ClockWords(seen.clocks[i]).c_str());
  }
}

// Returns the exit status of the failure, or 0. `every` 0: sampling is unchanged.
int Watch(int every, std::FILE* said, Observation* seen) {
  FleetQuestion question;
  JobFilter filter;
  std::string error;
  if (!ReadFleetFlags(&question, &error)) return Fail(kUsageError, error);
  if (!ReadFilter(&filter, &error)) return Fail(kUsageError, error);
  if (!AddFromDirectories(filter, &question, &error)) return Fail(kUnreachable, error);
  if (!DefaultToThisHost(&question, &error)) return Fail(kUsageError, error);
  JobLookOptions options;
  options.client = question.client;
  options.client.stop = StopOnSignal();
  options.hang_after = HangAfter();
  CallPoller poller(question.endpoints, options);
  poller.Begin();
  if (poller.heard() == 0) {
    for (const std::string& note : poller.Take().notes) Fail(0, note);
    Fail(0, "no endpoint answers; nothing is written");
    return FailUnheard(kUnreachable, question.is_nobody_here);
  }
  std::fprintf(
      said,
      "Watching %zu of %zu endpoints for %s: %zu communicators with %zu ranks.\n"
      "Overhead: each endpoint is asked for one communicator at a time, up to %d times a second "
      "for\n"
      "each live one. Reading all of them once takes the serving processes about %.1f ms of CPU\n"
      "time. A process of a job spends at most 2 %% of a core on all clients, an agent 25 %%.\n"
      "NCCL calls don't get slower.\n",
      poller.heard(), question.endpoints.size(), absl::FormatDuration(duration).c_str(),
      poller.communicators(), poller.ranks(),
      static_cast<int>(std::chrono::seconds(1) / kLookEvery),
      static_cast<double>(poller.ranks()) * kCallsOfRank * kSecondsPerCall * 1e3);
  if (every != 0) CloserLook::PrintCost(said);
  std::fflush(said);
  const std::chrono::milliseconds window = absl::ToChronoMilliseconds(duration);
  CloserLook closer(every, question.client.patience);
  if (every != 0) closer.Begin(poller.processes(), question.endpoints, window, said);
  std::fflush(said);
  const absl::Duration limit = absl::FromChrono(kLateLooks * question.client.patience);
  poller.Poll(window, [said, limit](std::size_t unread) {
    std::fprintf(said,
                 "Reading the calls of %s more, for up to %s: endpoints are busy. Ctrl-C skips "
                 "them.\n",
                 Plural(unread, "live communicator").c_str(), absl::FormatDuration(limit).c_str());
    std::fflush(said);
  });
  if (every != 0) closer.End();
  *seen = poller.Take();
  seen->notes.insert(seen->notes.end(), closer.notes().begin(), closer.notes().end());
  return 0;
}

FlagTable Flags() {
  return Joined(
      {{{"--duration", &duration, "DURATION",
         "how long to watch, 100ms to 10m (default 5s); longer until each live communicator was "
         "read "
         "once. Ctrl-C ends it earlier and writes the file. Earlier calls that are still kept are "
         "also drawn",
         "100ms to 10m"},
        {"--every", &asked_every, "N",
         "meanwhile time one launch in N (rounded up to a power of two; 1: all that have a free "
         "event), and observe all network steps, in the job's processes on this host of this user "
         "(root: all users). Settings revert automatically, even if it is killed",
         "1 to 16777216"},
        {"--from", &from, "CAPTURE", "draw what `pulse capture` has saved, a folder or a .tar.gz"},
        {"--out", &out, "FILE",
         "must not exist (default: nccl-pulse-TIME.pftrace in the current folder). /dev/stdout: "
         "messages then go to stderr"}},
       JobFlags()});
}

// Pipes and devices are written in place.
bool IsSpecial(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

// True if messages on standard output would be mixed with the file.
bool IsStandardOutput(const std::string& path) {
  struct stat there {
  }, output{};
  return stat(path.c_str(), &there) == 0 && fstat(STDOUT_FILENO, &output) == 0 &&
         there.st_dev == output.st_dev && there.st_ino == output.st_ino;
}

// Opens what is written in place, to `fd`. Otherwise only checks that the file can be created.
bool Open(const std::string& path, int* fd, std::string* error) {
  const bool is_output = IsStandardOutput(path);
  if (!is_output && !IsSpecial(path)) return CanCreate(path, error);
  // Without O_NONBLOCK, a FIFO without a reader would block.
  *fd = is_output ? dup(STDOUT_FILENO) : open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (*fd < 0) {
    return FailToWrite(
        path, errno == ENXIO ? "no process reads it; start its reader first" : ErrorText(errno),
        error);
  }
  return is_output || fcntl(*fd, F_SETFL, 0) == 0 || FailToWrite(path, ErrorText(errno), error);
}

int Run(const std::vector<std::string>& arguments) {
  std::string error;
  if (!AddAddresses(arguments, "a capture to --from, addresses to --targets", &error))
    return Fail(kUsageError, error);
  int every = asked_every.value_or(0);
  // Rounds as the plugin does, so that the printed value is the effective one.
  while ((every & (every - 1)) != 0) ++every;
  std::string path = out;
  if (path.empty()) {
    path = absl::StrCat("nccl-pulse-",
                        absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()),
                        ".pftrace");
  }
  if (!from.empty() && (!fleet_flags.endpoints.empty() || IsDirectoryNamed())) {
    return Fail(kUsageError, "--from and an address: a capture or a running job, not both");
  }
  if (every != 0 && !from.empty()) {
    return Fail(kUsageError, "--every needs a running job: it does not go with --from");
  }
  int fd = -1;
  if (!Open(path, &fd, &error)) return Fail(kNotWritten, error);
  std::FILE* const said = IsStandardOutput(path) ? stderr : stdout;
  Observation seen;
  if (!from.empty()) {
    if (!ReadCapture(from, &seen, &error)) return Fail(kUnreachable, error);
  } else if (const int status = Watch(every, said, &seen); status != 0) {
    return status;
  }
  TimelineSummary drawn;
  const std::string trace = DrawTimeline(seen, &drawn);
  if (!(fd < 0 ? WriteWhole(path, trace, &error) : WriteAndClose(fd, path, trace, &error))) {
    return Fail(kNotWritten, error);
  }
  std::fprintf(said, "%s: %s of %s in %s, from %s; %zu with a duration\n", path.c_str(),
               Plural(drawn.calls, "call").c_str(), Plural(drawn.ranks, "rank").c_str(),
               Plural(drawn.processes, "process").c_str(), Plural(seen.looks, "response").c_str(),
               drawn.timed);
  if (drawn.without_time != 0) {
    std::fprintf(said, "  %s without a time of its own, drawn where first seen\n",
                 Plural(drawn.without_time, "call").c_str());
  }
  if (drawn.gap_calls != 0) {
    std::fprintf(said, "  %s not seen: newer ones had replaced them (tracks GAP)\n",
                 Plural(drawn.gap_calls, "call").c_str());
  }
  if (drawn.not_called != 0) {
    std::fprintf(said, "  %s NOT CALLED a collective that others have\n",
                 Plural(drawn.not_called, "rank HAS", "ranks HAVE").c_str());
  }
  if (drawn.not_called_unseen != 0) {
    std::fprintf(said, "  %s behind when last polled (tracks HAS NOT CALLED)\n",
                 Plural(drawn.not_called_unseen, "rank was", "ranks were").c_str());
  }
  PrintClocks(seen, said);
  for (const std::string& note : seen.notes) {
    Fail(0, note);
  }
  if (drawn.calls == 0) {
    return Fail(kIncomplete, from.empty() ? "no call was seen; does `pulse status` show the job?"
                                          : "there is no call in it");
  }
  std::fprintf(said, "Open it at https://ui.perfetto.dev\n");
  // A capture has no page of an endpoint that did not answer.
  const auto silent =
      from.empty() ? std::count(seen.communicators.begin(), seen.communicators.end(), nullptr) : 0;
  return FailIncomplete(kIncomplete, drawn.missing_live, static_cast<std::size_t>(silent));
}

}  // namespace trace_command

const Command kTraceCommand = {"trace",
                               "draw a timeline of a job's calls, for ui.perfetto.dev",
                               trace_command::kHelp,
                               trace_command::Flags,
                               trace_command::Run,
                               ConnectFlags};

}  // namespace nccl_pulse
