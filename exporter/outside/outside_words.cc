#include "exporter/outside/outside_words.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/diagnosis/words/wait_words.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse::outside {
namespace {

const char* JobWords(const Job& job) {
  return job.is_endpoint_silent ? "a job whose endpoint gave no data" : "a job without NCCL Pulse";
}

struct Named {
  const RasCommunicator* communicator = nullptr;
  const RasRank* rank = nullptr;
  const ProcessFacts* facts = nullptr;
};

Named Find(const JobRank& named, const Job& job) {
  const RasRank* const rank = RankOf(job, named.comm_id, named.rank);
  if (rank == nullptr) return {};
  const auto facts = job.processes.find(KeyOf(*rank));
  if (facts == job.processes.end()) return {};
  return {&job.communicators.at(named.comm_id), rank, &facts->second};
}

// "rank 1 (10.0.3.7, GPU 1, pid 1018)"
std::string Name(const Named& named) {
  const ProcessFacts& facts = *named.facts;
  const bool has_global = facts.local != nullptr && !facts.local->global_rank.empty();
  const int32_t pid = facts.local != nullptr ? facts.local->pid : named.rank->pid;
  return absl::StrCat(has_global ? absl::StrCat("global rank ", facts.local->global_rank)
                                 : absl::StrCat("rank ", named.rank->rank),
                      " (", named.rank->host,
                      facts.gpu < 0 ? "" : absl::StrCat(", GPU ", facts.gpu), ", pid ", pid, ")");
}

// The counts by which ranks differ: "13,990 AllReduce, the others 14,000". "": they don't.
std::string CountWords(const RasCommunicator& communicator, const RasRank& rank) {
  std::vector<std::string> parts;
  for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (const RasRank& other : communicator.ranks) {
      if (!other.has_counts || other.counts[op] == rank.counts[op]) continue;
      least = std::min(least, other.counts[op]);
      most = std::max(most, other.counts[op]);
    }
    if (least > most) continue;
    parts.push_back(absl::StrCat(
        Grouped(rank.counts[op]), " ", kCountedOps[op], ", ",
        parts.empty() ? "the others " : "others ",
        least == most ? Grouped(most) : absl::StrCat(Grouped(least), " to ", Grouped(most))));
  }
  return absl::StrJoin(parts, "; ");
}

// Returns a sentence about ranks that have launched fewer, and perhaps wait. A single rank ahead of
// them may be at fault.
std::string DoubtWords(const std::vector<Named>& named, const std::vector<Named>& ahead) {
  const bool is_one = named.size() == 1;
  if (ahead.size() != 1) {
    return is_one ? " Whether it waits for another can't be seen."
                  : " Which of them waits for another can't be seen.";
  }
  const std::string who = Name(ahead.front());
  if (ahead.front().facts->gpu_use == GpuUse::kMixed) {
    return absl::StrCat(is_one ? " Or it waits" : " Or they wait", " outside NCCL for ", who,
                        ", whose GPU computes.");
  }
  return absl::StrCat(" Or ", who, " has called something else: that can't be seen.");
}

std::string GpuWords(const std::vector<Named>& named, const Job& job) {
  const auto is_use = [&named](GpuUse use) {
    return std::all_of(named.begin(), named.end(),
                       [use](const Named& each) { return each.facts->gpu_use == use; });
  };
  const bool is_one = named.size() == 1;
  const std::size_t busy = job.Using(GpuUse::kBusy);
  const std::string others =
      busy == 0 ? "" : absl::StrCat("; ", busy, " other", busy == 1 ? " is" : "s are", " busy");
  if (is_use(GpuUse::kIdle)) {
    return absl::StrCat(is_one ? " Its GPU runs nothing" : " Their GPUs run nothing", others, ".");
  }
  if (is_use(GpuUse::kBusy)) {
    return absl::StrCat(is_one ? " Its GPU is busy" : " Their GPUs are busy",
                        ": its work may wait for something else.");
  }
  return job.AreAll(GpuUse::kUnknown) ? " Its GPU isn't known here: NVML sees this host alone."
                                      : "";
}

std::string Listed(const std::vector<std::string>& all) {
  return Enumerate(all, 16, [](const std::string& each) { return each; });
}

// "Ranks 1 and 2 have"
std::string RanksHave(const std::vector<std::string>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "Rank " : "Ranks ", Listed(ranks),
                      ranks.size() == 1 ? " has" : " have");
}

// " Here are ranks 0, 2 and 3 of 4. Rank 1 (pid 1019) has not loaded NCCL.", as far as known from
// environments.
std::string RanksHereWords(const Job& job) {
  std::map<int32_t, int32_t> unloaded;  // pids by rank; the launcher's shell comes first
  std::set<int32_t> here;
  int32_t size = 0;
  int32_t of_host = 0;
  for (const auto& [key, facts] : job.processes) {
    int32_t rank = 0;
    if (facts.local == nullptr || !absl::SimpleAtoi(facts.local->global_rank, &rank)) return "";
    here.insert(rank);
    size = SizeOf(facts.local->world_size);
    of_host = SizeOf(facts.local->local_world_size);
  }
  for (const HostProcess* each : job.unloaded) {
    int32_t rank = 0;
    if (absl::SimpleAtoi(each->global_rank, &rank)) unloaded[rank] = each->pid;
  }
  if (here.empty() || *here.begin() < 0 || *here.rbegin() >= size) return "";
  // Without LOCAL_WORLD_SIZE all others may be on other hosts.
  const int32_t first = of_host == 0 ? 0 : *here.begin() / of_host * of_host;
  const int32_t end = of_host == 0 ? size : std::min(size, first + of_host);
  std::vector<std::string> present, waiting, absent;
  for (const int32_t rank : here) present.push_back(absl::StrCat(rank));
  for (int32_t rank = first; rank < end; ++rank) {
    if (here.count(rank) != 0) continue;
    const auto found = unloaded.find(rank);
    if (found == unloaded.end()) {
      absent.push_back(absl::StrCat(rank));
    } else {
      waiting.push_back(absl::StrCat(rank, " (pid ", found->second, ")"));
    }
  }
  std::string words = absl::StrCat(" Here ", present.size() == 1 ? "is rank " : "are ranks ",
                                   Listed(present), " of ", size, ".");
  if (!waiting.empty()) absl::StrAppend(&words, " ", RanksHave(waiting), " not loaded NCCL.");
  if (!absent.empty()) {
    absl::StrAppend(
        &words, " ", RanksHave(absent),
        of_host == 0 ? " no process on this host." : " no process, though this host is to run it.");
  }
  return words;
}

// Returns the sentence for a job whose GPUs have run nothing: its first communicator may never have
// been created.
std::string CreatingWords(const Job& job, const std::string& time) {
  if (job.is_creating) {
    return absl::StrCat("A communicator of ", JobWords(job), " has been in creation for ", time,
                        ", and its GPUs have run nothing. Which rank hasn't joined isn't known: "
                        "compare the stacks (py-spy dump).");
  }
  return absl::StrCat(
      "The ",
      job.processes.size() == 1 ? "GPU of a process"
                                : absl::StrCat("GPUs of ", job.processes.size(), " processes"),
      " with NCCL ", job.processes.size() == 1 ? "has" : "have", " run nothing for ", time,
      ", and NCCL's RAS doesn't know ", job.processes.size() == 1 ? "it" : "them",
      ": creating the first communicator, probably.", RanksHereWords(job));
}

// "is stopped by a signal". Not for kFine.
std::string ConditionWords(const ProcessFacts& facts, bool is_one) {
  switch (facts.condition) {
    case Condition::kFine:
      break;
    case Condition::kStopped:
      return absl::StrCat(is_one ? "is " : "are ", WhyNotRunning(facts.local->state));
    case Condition::kDead:
      return absl::StrCat(is_one ? "has" : "have", " ended (NCCL's RAS considers it dead)");
    case Condition::kGone:
      return absl::StrCat(is_one ? "has" : "have",
                          " ended (its pid is gone, and NCCL's RAS gets no answer)");
    case Condition::kSilent:
      const char* why = " (stopped, gone or unreachable)";
      if (facts.local != nullptr) {
        why = facts.local->state == RunState::kUninterruptible
                  ? ", and is in a driver call or I/O (state D)"
                  : ", though its process runs";
      }
      return absl::StrCat(is_one ? "does" : "do", " not answer NCCL's RAS", why);
  }
  return "";
}

// The first operation in which ranks differ: "Ranks 1 and 2 have launched 0 Broadcast, another one 10."
std::string FewerWords(const RasCommunicator& communicator) {
  for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
    std::map<uint64_t, std::vector<std::string>> ranks;  // by count
    for (const RasRank& rank : communicator.ranks) {
      if (rank.has_counts) ranks[rank.counts[op]].push_back(absl::StrCat(rank.rank));
    }
    if (ranks.size() < 2) continue;
    const auto& [least, behind] = *ranks.begin();
    return absl::StrCat(RanksHave(behind), " launched ", Grouped(least), " ", kCountedOps[op],
                        ", another one ", Grouped(ranks.rbegin()->first), ".",
                        WaitsForAll(kCountedOps[op]) ? "" : " Its root needn't wait for them.");
  }
  return "";
}

}  // namespace

std::string Grouped(uint64_t number) {
  std::string digits = absl::StrCat(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string RootWords(const JobRoot& root, const Job& job, int64_t stood_ns) {
  const std::string tail =
      absl::StrCat(", and nothing has moved for ", DurationWords(stood_ns), ".");
  const bool is_known = !root.ranks.empty();
  std::vector<Named> named, ahead;
  for (const JobRank& rank : is_known ? root.ranks : root.perhaps) {
    const Named found = Find(rank, job);
    if (found.rank == nullptr) continue;
    (is_known || HasFewer(*found.communicator, *found.rank) ? named : ahead).push_back(found);
  }
  const std::string counts =
      named.empty() ? "" : CountWords(*named.front().communicator, *named.front().rank);
  if (named.empty()) {
    return absl::StrCat(
        "no rank of ", JobWords(job),
        " is named: its ranks wait, and which rank they wait for can't be seen from outside", tail);
  }
  std::vector<std::string> names;
  for (const Named& each : named) names.push_back(Name(each));
  const std::string who = absl::StrCat(JoinFirst(names, "; "), " of ", JobWords(job), " ");
  const bool is_one = named.size() == 1;
  const char* const has = is_one ? "has" : "have";
  const Named& first = named.front();
  switch (root.verdict) {
    case HangVerdict::kProcessStopped:
    case HangVerdict::kProcessGone:
    case HangVerdict::kRankNotSeen:
      return absl::StrCat(who, ConditionWords(*first.facts, is_one), tail);
    case HangVerdict::kCircularWait:
      return absl::StrCat(who, "seem to wait for each other in a circle", tail);
    case HangVerdict::kMismatched:
      return absl::StrCat(who, has, " launched other collectives (",
                          CountWords(*first.communicator, *first.rank), ")", tail,
                          GpuWords(named, job));
    default:
      break;
  }
  if (root.situation == Situation::kFinalized) {
    return absl::StrCat(who, has, " finalized or aborted a communicator in which others wait",
                        tail);
  }
  const std::size_t busy = job.Using(GpuUse::kBusy);
  if (!counts.empty()) {
    return absl::StrCat(who, has, " launched ", counts, tail,
                        is_known ? GpuWords(named, job) : DoubtWords(named, ahead));
  }
  return absl::StrCat(who, is_one ? "has a GPU that runs" : "have GPUs that run",
                      " nothing, while ", busy, busy == 1 ? " other is" : " others are", " busy",
                      tail,
                      job.unused < job.communicators.size() && job.has_counts
                          ? " All have launched as many collectives."
                          : "");
}

std::string SummaryWords(const Job& job, int64_t stood_ns) {
  const std::string time = DurationWords(stood_ns);
  if (job.moved != 0) {
    return absl::StrCat(Capital(JobWords(job)), " launches collectives: ", job.moved, " of ",
                        job.communicators.size(), " communicators moved within ", time, ".",
                        job.waiting == 0
                            ? ""
                            : absl::StrCat(" In the others ", job.waiting,
                                           job.waiting == 1 ? " GPU waits." : " GPUs wait."));
  }
  if (job.unclear == job.communicators.size()) {
    return absl::StrCat("Only one of two answers of NCCL's RAS has the communicators of ",
                        JobWords(job), ": it has just begun, or wasn't asked. Next: run it again.");
  }
  if (job.AreAll(GpuUse::kIdle)) {
    if (!job.has_counts || job.is_creating) return CreatingWords(job, time);
    return absl::StrCat(
        "The GPUs of ", JobWords(job), " have run nothing for ", time,
        job.unused == 0
            ? ": no rank waits inside NCCL."
            : absl::StrCat(". Of its communicators, ", job.unused,
                           job.unused == 1 ? " has" : " have",
                           " launched no collective: whether a rank waits in the first one "
                           "isn't known. Next: compare the stacks (py-spy dump)."));
  }
  return absl::StrCat(
      Capital(JobWords(job)), " has launched no counted collective for ", time, ". ",
      job.Using(GpuUse::kShared) != 0
          ? "Which ranks wait isn't known: they share GPUs, which NVML doesn't tell apart."
      : job.AreAll(GpuUse::kUnknown)
          ? "Whether its GPUs wait can't be seen here: there is no NVML, "
            "or they are on other hosts."
      : job.AreAll(GpuUse::kBusy)
          ? "Its GPUs are all busy: they wait for each other, or replay CUDA graphs, which aren't "
            "counted."
          : "Whether its GPUs wait isn't known: replays of CUDA graphs, Send and Recv aren't "
            "counted.");
}

std::vector<std::string> NoteWords(const Job& job, const JobVerdict& verdict) {
  constexpr int kInProgress = 7;  // ncclInProgress
  std::set<ProcessKey> said;
  for (const JobRoot& root : verdict.roots) {
    for (const JobRank& each : root.ranks) {
      if (const RasRank* rank = RankOf(job, each.comm_id, each.rank)) said.insert(KeyOf(*rank));
    }
  }
  std::vector<std::string> notes;
  std::string fewer;
  for (const auto& [id, communicator] : job.communicators) {
    for (const RasRank& rank : communicator.ranks) {
      const ProcessFacts& facts = job.processes.at(KeyOf(rank));
      const auto who = [&] { return Capital(Name({&communicator, &rank, &facts})); };
      if (rank.async_error != 0 && rank.async_error != kInProgress) {
        notes.push_back(absl::StrCat(who(), " reports an asynchronous error of NCCL: ncclResult_t ",
                                     rank.async_error, "."));
      }
      if (facts.condition != Condition::kFine && rank.pid != 0 && said.insert(KeyOf(rank)).second) {
        notes.push_back(absl::StrCat(who(), " ", ConditionWords(facts, true), "."));
      }
    }
    if (fewer.empty()) fewer = FewerWords(communicator);
  }
  if (notes.size() > kMostListed) {
    const std::size_t more = notes.size() - kMostListed;
    notes.resize(kMostListed);
    notes.push_back(absl::StrCat(more, " more facts of this kind."));
  }
  if (verdict.roots.empty() && job.moved == 0 && !fewer.empty()) notes.push_back(std::move(fewer));
  return notes;
}

std::string SourceWords(const Job& job, const std::string& nccl_version, bool has_nvml) {
  std::vector<std::string> from = {"/proc"};
  if (has_nvml) from.insert(from.begin(), "NVML");
  if (job.has_counts) {
    from.insert(from.begin(), nccl_version.empty()
                                  ? "NCCL's RAS"
                                  : absl::StrCat("NCCL's RAS (", nccl_version, ")"));
  }
  return absl::StrCat("From ", Listed(from),
                      job.is_endpoint_silent
                          ? ": the job's endpoint gave no data."
                          : ". Sizes, times and calls in graphs need the plugin: "
                            "NCCL_PROFILER_PLUGIN=pulse.");
}

}  // namespace nccl_pulse::outside
