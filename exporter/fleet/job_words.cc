#include "exporter/fleet/job_words.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "exporter/base/communicator_id.h"
#include "exporter/diagnosis/pid_words.h"
#include "exporter/diagnosis/rank_activity.h"
#include "exporter/fleet/job_report.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostNamed = 4;
constexpr int64_t kSecondNs = 1000000000;

std::string Count(std::size_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
}

std::string Clock(int64_t realtime_ns, const char* format = "%H:%M:%S") {
  return absl::FormatTime(format, absl::FromUnixNanos(realtime_ns), absl::LocalTimeZone());
}

// ", since 16:06:59 (37 s)"
std::string Since(const JobLook& look, int64_t realtime_ns) {
  const std::string since = SinceWords(look, realtime_ns);
  if (since == "-") return "";
  return look.is_of_dumps ? absl::StrCat(", since ", since)
                          : absl::StrCat(", since ", Clock(realtime_ns), " (", since, ")");
}

std::string Who(const std::vector<JobRank>& ranks) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ranks.size() && i < kMostNamed; ++i) {
    names.push_back(RankWords(ranks[i]));
  }
  const std::size_t more = ranks.size() - names.size();
  return absl::StrCat(absl::StrJoin(names, "; "),
                      more == 0 ? "" : absl::StrCat("; ", more, " more"));
}

// The one that is named is in exit().
bool IsExiting(const JobRoot& root) {
  return root.ranks.size() == 1 && root.ranks.front().process != nullptr &&
         root.ranks.front().process->poller == PollerState::kEnded;
}

// Follows "global rank 3 on node-1 (GPU 3, pid 7) ..."
std::string What(const JobLook& look, const JobRoot& root) {
  const bool is_one = root.ranks.size() == 1;
  const std::string op = root.op.empty() ? "what the others wait in" : root.op;
  switch (root.verdict) {
    case HangVerdict::kRankNotCalled:
      if (root.is_finalized) {
        return absl::StrCat(is_one ? "has" : "have",
                            " finalized or aborted a communicator in which others wait");
      }
      return absl::StrCat(IsExiting(root) ? "is in exit(), and " : "", is_one ? "has" : "have",
                          " not called ", root.missing_call.empty() ? op : root.missing_call);
    case HangVerdict::kRankNotLaunched:
      return absl::StrCat(is_one ? "has" : "have", " called ", op, " and is inside NCCL");
    case HangVerdict::kRankNotBegun:
      if (root.is_in_replay) {
        return absl::StrCat(is_one ? "has" : "have",
                            " not come as far in the replays of CUDA graphs as the others");
      }
      return absl::StrCat(is_one ? "has" : "have", " launched ", op,
                          ", but the GPU has not begun it");
    case HangVerdict::kMismatched:
      return absl::StrCat(is_one ? "has" : "have", " called something other than the others (", op,
                          ")");
    case HangVerdict::kCircularWait:
      return "seem to wait for each other in a circle";
    case HangVerdict::kProcessGone:
      return "ended without finalizing its communicators";
    case HangVerdict::kProcessStopped:
      return is_one ? "does not run" : "do not run";
    case HangVerdict::kDriverError:
      return absl::StrCat(
          is_one ? "has a GPU whose driver answers" : "have GPUs whose drivers answer",
          " with an error that does not end");
    case HangVerdict::kRankNotSeen:
      if (root.is_being_made) {
        return absl::StrCat(is_one ? "has" : "have", " not come to communicator ",
                            CommunicatorText(root.communicators.front()), ", which others make");
      }
      return look.is_of_dumps
                 ? absl::StrCat(is_one ? "has" : "have", " no dump that could be used")
                 : absl::StrCat(is_one ? "is" : "are", " not seen at any endpoint that answered");
    case HangVerdict::kNoProgress:
      return absl::StrCat(is_one ? "has" : "have",
                          " not completed a call that others have completed");
    default:
      return "";
  }
}

std::string NobodyNamed(const JobLook& look, const JobRoot& root) {
  const std::string where =
      absl::StrCat("communicator ", CommunicatorText(root.communicators.front()),
                   root.communicators.size() == 1
                       ? ""
                       : absl::StrCat(" and ", root.communicators.size() - 1, " more"));
  switch (root.verdict) {
    case HangVerdict::kNoProgress:
      if (root.is_queued) {
        return absl::StrCat("no rank is named: the GPUs of ", where,
                            " are behind earlier work of their own, which does not end");
      }
      return absl::StrCat(
          "no rank is named: all ranks of ", where,
          root.is_in_replay ? " have come to " : " have called ",
          root.is_in_replay ? "the same part of a CUDA graph's replay"
          : root.op.empty() ? "it"
                            : root.op,
          root.is_in_replay ? ", and it makes no progress" : ", and none of it has completed");
    case HangVerdict::kPointToPoint:
      return absl::StrCat(
          "no rank is named: ",
          look.is_of_dumps ? absl::StrCat("both ranks of ", where, " wait in Send or Recv")
                           : absl::StrCat("ranks of ", where, " wait in Send or Recv"),
          root.perhaps.empty() ? "" : absl::StrCat("; nothing in flight: ", Who(root.perhaps)));
    default:
      return absl::StrCat("no rank can be named on ", where);
  }
}

// The roots behind the first one, by their ranks where all of them have some.
std::string Others(const JobVerdict& verdict) {
  std::vector<JobRank> ranks;
  for (auto root = verdict.roots.begin() + 1; root != verdict.roots.end(); ++root) {
    if (root->ranks.empty()) return absl::StrCat(" ", verdict.roots.size() - 1, " more below.");
    ranks.insert(ranks.end(), root->ranks.begin(), root->ranks.end());
  }
  return ranks.empty() ? "" : absl::StrCat(" Also named: ", Who(ranks), ".");
}

std::string Unheard(const JobLook& look) {
  if (look.heard == look.endpoints) return "";
  return absl::StrCat(" ", look.endpoints - look.heard, " of ", look.endpoints,
                      look.is_of_dumps ? " dumps could not be used" : " endpoints did not answer",
                      ": what they know is missing here.");
}

std::string Unseen(const JobLook& look) {
  const std::size_t missing = look.health.missing_ranks;
  if (missing == 0) return "";
  if (look.is_of_dumps) {
    return absl::StrCat(" Of ", Count(missing, "rank", "ranks"), " no dump could be used.");
  }
  return absl::StrCat(" At least ", Count(missing, "rank is", "ranks are"),
                      " not known to any endpoint that answered.");
}

std::string On(const JobRank& rank) {
  if (rank.process == nullptr) return "";
  if (rank.process->is_of_dump) {
    return absl::StrCat(" where global rank ", rank.process->global_rank, " runs");
  }
  return rank.process->hostname.empty() ? "" : absl::StrCat(" on ", rank.process->hostname);
}

// The process and where its number counts, for a command: "4711" and " on node-1".
std::pair<std::string, std::string> PidAndPlace(const JobRank* rank) {
  if (rank == nullptr || rank->process == nullptr) return {"PID", ""};
  const ProcessSnapshot& process = *rank->process;
  if (process.is_of_dump) return {"PID", On(*rank)};
  if (HostPid(process) > 0) return {absl::StrCat(HostPid(process)), On(*rank)};
  return {absl::StrCat(process.pid), absl::StrCat(On(*rank), ", in its container (PID namespace ",
                                                  process.pid_namespace, ")")};
}

}  // namespace

std::string AgeWords(int64_t ns) {
  const int64_t seconds = std::max<int64_t>(ns / kSecondNs, 0);
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min");
  return absl::StrCat(seconds / 3600, " h");
}

std::string SinceWords(const JobLook& look, int64_t realtime_ns) {
  if (!look.is_of_dumps) return AgeWords(ElapsedNs(look.now_realtime_ns, realtime_ns));
  return realtime_ns < kSecondNs ? "-" : Clock(realtime_ns, "%Y-%m-%d %H:%M:%S");
}

std::string RankWords(const JobRank& rank) {
  if (rank.process == nullptr) {
    return absl::StrCat("rank ", rank.rank, " of communicator ", CommunicatorText(rank.comm_id));
  }
  const std::string& global = rank.process->global_rank;
  if (rank.process->is_of_dump) return absl::StrCat("global rank ", global);
  const std::string& host = rank.process->hostname;
  const std::string& gpu = rank.communicator->gpu;
  return absl::StrCat(
      global.empty()
          ? absl::StrCat("rank ", rank.rank, " of communicator ", CommunicatorText(rank.comm_id))
          : absl::StrCat("global rank ", global),
      host.empty() ? "" : absl::StrCat(" on ", host), " (",
      gpu.empty() ? "" : absl::StrCat("GPU ", gpu, ", "), "pid ", PidWords(*rank.process), ")");
}

std::string FirstStep(const JobRoot& root) {
  const JobRank* rank = root.ranks.empty() ? nullptr : &root.ranks.front();
  const bool is_seen = rank != nullptr && rank->process != nullptr;
  const auto [pid, place] = PidAndPlace(rank);
  const std::string on = is_seen ? On(*rank) : "";
  switch (root.verdict) {
    case HangVerdict::kRankNotCalled:
      if (IsExiting(root)) {
        return absl::StrCat("gdb -p ", pid, " -batch -ex 'thread apply all bt'", place,
                            ": what of its end does not end");
      }
      [[fallthrough]];
    case HangVerdict::kMismatched:
    case HangVerdict::kCircularWait:
      return absl::StrCat("py-spy dump --pid ", pid, place, ": what its program does");
    case HangVerdict::kRankNotLaunched:
      return absl::StrCat("gdb -p ", pid, " -batch -ex 'thread apply all bt'", place,
                          ": where it is inside NCCL");
    case HangVerdict::kRankNotBegun:
      if (root.is_in_replay) {
        return absl::StrCat("py-spy dump --pid ", pid, place,
                            ": whether its program launches the replay; then nvidia-smi and dmesg "
                            "(Xid)");
      }
      return absl::StrCat("nvidia-smi and dmesg (Xid)", on,
                          is_seen && !rank->communicator->gpu.empty()
                              ? absl::StrCat(", GPU ", rank->communicator->gpu)
                              : "",
                          ": which kernel before it does not end");
    case HangVerdict::kProcessGone:
      return absl::StrCat("its log, and dmesg", on, ": why it ended");
    case HangVerdict::kProcessStopped:
      return absl::StrCat("cat /proc/", pid, "/status /proc/", pid, "/stack", place,
                          ": what stops it");
    case HangVerdict::kDriverError:
      return absl::StrCat("nvidia-smi -q and dmesg (Xid)", on,
                          is_seen && !rank->communicator->gpu.empty()
                              ? absl::StrCat(", GPU ", rank->communicator->gpu)
                              : "",
                          ", and dcgm: what happened to it; then end the process");
    case HangVerdict::kRankNotSeen:
      if (is_seen && root.is_being_made) {
        return absl::StrCat("py-spy dump --pid ", pid, place, ": what its program does");
      }
      if (is_seen) {
        return absl::StrCat("whether the process of ", RankWords(*rank), " is alive, and its log");
      }
      return "whether its process and its node are alive, and which endpoint should know it";
    case HangVerdict::kNoProgress:
      if (root.is_queued) {
        return "nvidia-smi and py-spy dump on its hosts: which kernels that are not NCCL's run "
               "there (DeepEP, NVSHMEM, a custom all-reduce)";
      }
      if (is_seen) return absl::StrCat("nvidia-smi, dmesg (Xid) and the network's link errors", on);
      return "the network and the GPUs of its hosts: link errors, dmesg (Xid)";
    case HangVerdict::kPointToPoint:
      return "the stacks of the ranks that wait, and of those that have nothing in flight";
    default:
      return "the communicators' own pages: pulse status on the hosts that wait";
  }
}

std::string FirstStep(const JobStraggler& straggler) {
  const std::string on = straggler.ranks.empty() ? "" : On(straggler.ranks.front());
  return absl::StrCat("nvidia-smi -q -d PERFORMANCE", on,
                      straggler.ranks.size() == 1 ? " (is its GPU hot or throttled?)"
                                                  : " (are its GPUs hot or throttled?)",
                      ", and top", on.empty() ? "" : " there", " (what else runs?)");
}

std::string Sentence(const JobLook& look) {
  const JobVerdict& verdict = look.verdict;
  const std::string unheard = Unheard(look);
  const std::string unseen = Unseen(look);
  if (verdict.roots.empty()) {
    if (look.heard == 0) {
      return look.is_of_dumps ? "UNKNOWN  No dump could be used."
                              : "UNKNOWN  No endpoint answered.";
    }
    if (verdict.processes == 0) {
      return absl::StrCat("UNKNOWN  No process of this job is known to the endpoints.", unheard);
    }
    const std::string summary =
        look.health.summary.empty() ? "No hang is suspected." : look.health.summary;
    const bool is_clear = FindingOfJob(look) == JobFinding::kNone;
    const std::string kind =
        !is_clear ? "INCOMPLETE  "
        : verdict.stragglers.empty()
            ? "OK  "
            : absl::StrCat("SLOW  ", StragglerSentence(verdict.stragglers.front()), " ");
    return absl::StrCat(
        kind, summary, " ", Count(verdict.processes, "process", "processes"),
        look.is_of_dumps ? "" : absl::StrCat(" on ", Count(look.heard, "endpoint", "endpoints")),
        ".", unseen, unheard);
  }
  const JobRoot& root = verdict.roots.front();
  return absl::StrCat(root.is_usual ? "WAIT  " : "HANG  ",
                      root.ranks.empty() ? NobodyNamed(look, root)
                                         : absl::StrCat(Who(root.ranks), " ", What(look, root)),
                      Since(look, root.since_realtime_ns), "; ", verdict.waits.size(), " of ",
                      verdict.processes, " processes wait. First: ", FirstStep(root), ".",
                      root.is_usual ? " It has waited as long here before, and gone on." : "",
                      Others(verdict), unseen, unheard);
}

std::string StragglerSentence(const JobStraggler& straggler) {
  const std::string who =
      straggler.ranks.size() == 1 ? absl::StrCat(RankWords(straggler.ranks.front()), ": ") : "";
  return absl::StrCat(who, straggler.text, " First: ", FirstStep(straggler), ".");
}

std::string WaitedFor(const JobWait& wait) {
  if (wait.suspects.empty()) return HangVerdictName(wait.verdict);
  std::vector<int32_t> suspects = wait.suspects;
  const std::size_t more = suspects.size() > kMostNamed ? suspects.size() - kMostNamed : 0;
  suspects.resize(suspects.size() - more);
  return absl::StrCat(
      "rank ", absl::StrJoin(suspects, ", "), more == 0 ? "" : absl::StrCat(" and ", more, " more"),
      wait.verdict == HangVerdict::kBlockedElsewhere ? ", which may wait elsewhere" : "");
}

}  // namespace nccl_pulse
