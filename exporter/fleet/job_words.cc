#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "exporter/base/communicator_id.h"
#include "exporter/diagnosis/facts/member.h"
#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/fleet/job_report.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostNamed = 4;
constexpr int64_t kSecondNs = 1000000000;

// ", since 16:06:59 UTC (37 s)"
std::string Since(const JobLook& look, int64_t realtime_ns) {
  const std::string since = SinceWords(look, realtime_ns);
  if (since == "-") return "";
  return look.is_of_dumps ? absl::StrCat(", since ", since)
                          : absl::StrCat(", since ", ClockWords(realtime_ns), " (", since, ")");
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

// Returns the text of each named process if it is the same for all; "" otherwise.
template <typename Text>
std::string OfAll(const JobRoot& root, Text text) {
  std::set<std::string> texts;
  for (const JobRank& rank : root.ranks) {
    texts.insert(rank.process == nullptr ? "" : text(*rank.process));
  }
  return texts.size() == 1 ? *texts.begin() : "";
}

// Returns the verdict's words, to follow "global rank 3 on node-1 (GPU 3, pid 7) ", or "no rank is
// named: ".
std::string What(const JobLook& look, const JobRoot& root) {
  const bool is_named = !root.ranks.empty();
  const bool is_one = root.ranks.size() == 1;
  const char* const others = "the others' operations";
  const std::string op = !root.op.empty() ? root.op : is_named ? others : "a call";
  // Ranks of several communicators lack several calls. For a Send of the others, they lack a Recv.
  const bool is_of_many = std::any_of(
      root.ranks.begin(), root.ranks.end(),
      [&root](const JobRank& rank) { return rank.comm_id != root.ranks.front().comm_id; });
  std::string call = root.missing_call;
  if (is_of_many || (call.empty() && IsPointToPoint(op))) call = others;
  if (call.empty()) call = op;
  const std::size_t more = root.communicators.empty() ? 0 : root.communicators.size() - 1;
  const std::string comm = absl::StrCat(
      "communicator ", root.communicators.empty() ? "" : CommunicatorText(root.communicators[0]),
      more == 0 ? "" : absl::StrCat(" and ", more, " more"));
  const auto column = is_named ? &VerdictWords::named : &VerdictWords::nobody;
  const char* words = WordsOf(root.verdict, root.situation, column);
  if (look.is_of_dumps && root.situation == Situation::kPlain) {
    words = WordsOf(root.verdict, Situation::kOfDumps, column);
  }
  const std::string why = OfAll(root, [](const auto& its) { return WhyNotRunning(its.run_state); });
  const char* const has = is_one ? "has" : "have";
  const char* const is = is_one ? "is" : "are";
  const std::string idle =
      why.empty() ? absl::StrCat(has, " done nothing") : absl::StrCat(is, " ", why);
  return absl::StrReplaceAll(words, {{"{has}", has},
                                     {"{is}", is},
                                     {"{idle}", idle},
                                     {"{at}", OfAll(root, AtEnd)},
                                     {"{call}", call},
                                     {"{op}", op},
                                     {"{comm}", comm}});
}

// "; 3 of 4 processes wait". Empty if the waiting ranks are in the suspect's own process.
std::string WaitingWords(const JobVerdict& verdict) {
  if (verdict.waits.empty()) return "";
  return absl::StrCat("; ", verdict.waits.size(), " of ", verdict.processes, " processes wait");
}

// "; nothing in flight: global rank 3 ...", where Send and Recv do not end.
std::string Perhaps(const JobRoot& root) {
  return root.verdict != HangVerdict::kPointToPoint || root.perhaps.empty()
             ? ""
             : absl::StrCat("; nothing in flight: ", Who(root.perhaps));
}

// "INCOMPLETE  "
std::string StateWord(const JobLook& look) {
  return absl::StrCat(absl::AsciiStrToUpper(JobStateName(StateOf(look))), "  ");
}

std::string AlsoNamed(const std::vector<JobRank>& ranks) {
  return ranks.empty() ? "" : absl::StrCat(" Also named: ", Who(ranks), ".");
}

// Returns words about the roots after the first, by their ranks if all have some.
std::string Others(const JobVerdict& verdict) {
  std::vector<JobRank> ranks;
  for (auto root = verdict.roots.begin() + 1; root != verdict.roots.end(); ++root) {
    if (root->ranks.empty()) return absl::StrCat(" ", verdict.roots.size() - 1, " more below.");
    ranks.insert(ranks.end(), root->ranks.begin(), root->ranks.end());
  }
  return AlsoNamed(ranks);
}

std::string SlowWords(const std::vector<JobStraggler>& stragglers) {
  if (stragglers.empty()) return "";
  std::vector<JobRank> others;
  for (auto each = stragglers.begin() + 1; each != stragglers.end(); ++each) {
    others.insert(others.end(), each->ranks.begin(), each->ranks.end());
  }
  return absl::StrCat(StragglerSentence(stragglers.front()), AlsoNamed(others), " ");
}

std::string Unheard(const JobLook& look) {
  if (look.heard == look.endpoints) return "";
  return absl::StrCat(" ", look.endpoints - look.heard, " of ", look.endpoints,
                      look.is_of_dumps ? " dumps could not be used" : " endpoints did not answer",
                      ": their ranks may be missing here.");
}

std::string Unseen(const JobLook& look) {
  const std::size_t missing = look.health.missing_ranks;
  if (missing == 0) return "";
  if (look.is_of_dumps) {
    return absl::StrCat(" No dump of ", Plural(missing, "rank"), " could be used.");
  }
  return absl::StrCat(" At least ", Plural(missing, "rank is", "ranks are"),
                      " not known to any endpoint that answered.");
}

}  // namespace

std::string SinceWords(const JobLook& look, int64_t realtime_ns) {
  if (!look.is_of_dumps) return DurationWords(ElapsedNs(look.now_realtime_ns, realtime_ns));
  return realtime_ns < kSecondNs ? "-" : DateWords(realtime_ns);
}

std::string DateWords(int64_t realtime_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(realtime_ns),
                          absl::UTCTimeZone());
}

std::string RootText(const JobLook& look, const JobRoot& root) {
  if (!look.outside.empty()) return root.text;
  std::string who = "no rank is named: ";
  if (!root.ranks.empty()) {
    const JobRank& first = root.ranks.front();
    who = first.process == nullptr || first.process->global_rank.empty()
              ? absl::StrCat("rank ", first.rank, " of communicator ",
                             CommunicatorText(first.comm_id))
              : absl::StrCat("rank ", first.process->global_rank);
    if (first.process != nullptr && !first.process->is_of_dump) {
      const std::string& gpu = first.communicator->gpu;
      absl::StrAppend(
          &who, " (", first.process->hostname, first.process->hostname.empty() ? "" : ", ",
          gpu.empty() ? absl::StrCat("pid ", PidWords(*first.process)) : absl::StrCat("GPU ", gpu),
          ")");
    }
    const std::size_t more = root.ranks.size() - 1;
    absl::StrAppend(&who, more == 0 ? "" : absl::StrCat(" and ", more, " more"), " ");
  }
  const std::size_t waiting = look.verdict.waits.size();
  return absl::StrCat(who, What(look, root), "; ",
                      Plural(waiting, "process waits", "processes wait"));
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

namespace {

// Returns the sentence for a job diagnosed without the plugin. Its texts are whole sentences.
std::string SentenceFromOutside(const JobLook& look) {
  const JobVerdict& verdict = look.verdict;
  if (verdict.roots.empty()) {
    return absl::StrCat(StateWord(look), look.health.summary);
  }
  const JobRoot& root = verdict.roots.front();
  return absl::StrCat(
      StateWord(look), root.text, " Next: ",
      root.ranks.empty() ? "compare the stacks of its ranks (py-spy dump)" : FirstStep(root), ".",
      Others(verdict));
}

// " First without finalizing: global rank 1 on node-1 (GPU 1, pid 7), 400 ms before the others.
// Next: its log ..." if it is known which process was the first to end. A launcher ends the others
// within a second.
std::string FirstEnded(const std::vector<ProcessSnapshot>& ended) {
  // A launcher may restart the job after an end, so earlier ends belong to an earlier attempt.
  int64_t started_ns = 0;
  for (const ProcessSnapshot& process : ended) {
    if (!process.communicators.empty())
      started_ns = std::max(started_ns, process.start_realtime_ns);
  }
  std::vector<const ProcessSnapshot*> lost;
  for (const ProcessSnapshot& process : ended) {
    const bool is_of_last = process.end_realtime_ns >= started_ns;
    if (process.end == ProcessEnd::kLost && is_of_last && !process.communicators.empty())
      lost.push_back(&process);
  }
  std::sort(lost.begin(), lost.end(), [](const ProcessSnapshot* a, const ProcessSnapshot* b) {
    return a->end_realtime_ns < b->end_realtime_ns;
  });
  const auto before = [&](const ProcessSnapshot& other) {
    return ElapsedNs(other.end_realtime_ns, lost.front()->end_realtime_ns);
  };
  const bool is_first =
      !lost.empty() && std::all_of(lost.begin() + 1, lost.end(), [&](const ProcessSnapshot* each) {
        return before(*each) >= ClockSlackNs(*lost.front(), *each);
      });
  if (!is_first) return "";
  const CommunicatorSnapshot& comm = lost[0]->communicators.front();
  const std::string& host = lost[0]->hostname;
  return absl::StrCat(lost.size() == 1 ? " Without finalizing: " : " First without finalizing: ",
                      RankWords({comm.comm_id, comm.rank, lost[0], &comm}),
                      lost.size() == 1
                          ? ""
                          : absl::StrCat(", ", before(*lost[1]) / 1000000, " ms before the others"),
                      ". Next: its log, and dmesg", host.empty() ? "" : absl::StrCat(" on ", host),
                      " (killed? out of memory?).");
}

}  // namespace

std::string JobSentence(const JobLook& look) {
  if (!look.outside.empty()) return SentenceFromOutside(look);
  const JobVerdict& verdict = look.verdict;
  const std::string unheard = Unheard(look);
  const std::string unseen = Unseen(look);
  if (verdict.roots.empty()) {
    if (look.heard == 0) {
      return look.is_of_dumps ? "UNKNOWN  No dump could be used."
                              : "UNKNOWN  No endpoint answered.";
    }
    if (StateOf(look) == JobState::kEnded) {
      int64_t last_ns = 0;
      for (const ProcessSnapshot& process : look.set.ended) {
        last_ns = std::max(last_ns, process.end_realtime_ns);
      }
      return absl::StrCat(StateWord(look), "No process of this job lives. ",
                          Plural(look.set.ended.size(), "process has", "processes have"),
                          " ended, the last at ", ClockWords(last_ns), ".",
                          FirstEnded(look.set.ended), unheard);
    }
    if (verdict.processes == 0 && look.set.outside_notes.empty()) {
      return absl::StrCat(
          "UNKNOWN  No process of this job is known to the endpoints.",
          look.other_jobs.empty()
              ? ""
              : absl::StrCat(" Known jobs: ", absl::StrJoin(look.other_jobs, ", "), "."),
          unheard);
    }
    const std::string summary =
        look.health.summary.empty() ? "No hang is suspected." : look.health.summary;
    return absl::StrCat(
        StateWord(look), SlowWords(verdict.stragglers), summary, " ",
        Plural(verdict.processes, "process"),
        look.is_of_dumps ? "" : absl::StrCat(" on ", Plural(look.heard, "endpoint")), ".", unseen,
        unheard);
  }
  const JobRoot& root = verdict.roots.front();
  return absl::StrCat(
      StateWord(look),
      root.ranks.empty() ? "no rank is named: " : absl::StrCat(Who(root.ranks), " "),
      What(look, root), root.ranks.empty() ? Perhaps(root) : "", WaitingWords(verdict),
      Since(look, root.since_realtime_ns), ". Next: ", FirstStep(root), ".",
      root.is_usual ? " It has waited as long here before, and then resumed." : "", Others(verdict),
      unseen, unheard);
}

std::string StragglerSentence(const JobStraggler& straggler) {
  std::string said = straggler.text;
  if (straggler.ranks.size() == 1) {
    said = absl::StrCat(RankWords(straggler.ranks.front()),
                        straggler.lateness.empty() ? absl::StrCat(": ", straggler.text)
                                                   : absl::StrCat(" ", straggler.lateness));
  }
  return absl::StrCat(said, " Next: ", FirstStep(straggler), ".");
}

std::string WaitedFor(const JobWait& wait) {
  if (wait.suspects.empty()) return "not known";
  std::vector<int32_t> suspects = wait.suspects;
  const std::size_t more = suspects.size() > kMostNamed ? suspects.size() - kMostNamed : 0;
  suspects.resize(suspects.size() - more);
  return absl::StrCat(
      "rank ", absl::StrJoin(suspects, ", "), more == 0 ? "" : absl::StrCat(" and ", more, " more"),
      wait.verdict == HangVerdict::kBlockedElsewhere ? ", which may wait elsewhere" : "");
}

}  // namespace nccl_pulse
