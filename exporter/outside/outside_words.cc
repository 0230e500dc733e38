#include "exporter/outside/outside_words.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/diagnosis/words/rank_words.h"
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
  return {&job.communicators.at(named.comm_id), rank, &job.processes.at(KeyOf(*rank))};
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
  const std::size_t busy = job.uses[GpuUse::kBusy];
  const std::string others =
      busy == 0 ? "" : absl::StrCat("; ", busy, " other", busy == 1 ? " is" : "s are", " busy");
  if (is_use(GpuUse::kIdle)) {
    return absl::StrCat(is_one ? " Its GPU runs nothing" : " Their GPUs run nothing", others, ".");
  }
  if (is_use(GpuUse::kBusy)) {
    return is_one ? " Its GPU is busy: its work may wait for something else."
                  : " Their GPUs are busy: their work may wait for something else.";
  }
  return !job.uses.AreAll(GpuUse::kUnknown) ? ""
         : is_one ? " Its GPU isn't known here: NVML sees this host alone."
                  : " Their GPUs aren't known here: NVML sees this host alone.";
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
  std::map<int32_t, const HostProcess*> here;
  int32_t rank = 0;
  for (const auto& [key, facts] : job.processes) {
    if (facts.local == nullptr || !absl::SimpleAtoi(facts.local->global_rank, &rank)) return "";
    here[rank] = facts.local;
  }
  for (const HostProcess* each : job.unloaded) {
    if (absl::SimpleAtoi(each->global_rank, &rank)) unloaded[rank] = each->pid;
  }
  const int32_t size = here.empty() ? 0 : SizeOf(here.begin()->second->world_size);
  if (size == 0 || here.begin()->first < 0 || here.rbegin()->first >= size) return "";
  // Without LOCAL_WORLD_SIZE all others may be on other hosts.
  const int32_t of_host = SizeOf(here.begin()->second->local_world_size);
  const int32_t first = of_host == 0 ? 0 : here.begin()->first / of_host * of_host;
  std::vector<std::string> present, waiting, absent;
  for (rank = first; rank < (of_host == 0 ? size : std::min(size, first + of_host)); ++rank) {
    const auto found = unloaded.find(rank);
    if (here.count(rank) != 0) {
      present.push_back(absl::StrCat(rank));
    } else if (found == unloaded.end()) {
      absent.push_back(absl::StrCat(rank));
    } else {
      waiting.push_back(absl::StrCat(rank, " (pid ", found->second, ")"));
    }
  }
  return absl::StrCat(
      " Here ", present.size() == 1 ? "is rank " : "are ranks ", Listed(present), " of ", size, ".",
      waiting.empty() ? "" : absl::StrCat(" ", RanksHave(waiting), " not loaded NCCL."),
      absent.empty() ? "" : absl::StrCat(" ", RanksHave(absent), " no process"),
      absent.empty() ? ""
      : of_host == 0 ? " on this host."
                     : ", though this host is to run it.");
}

// Returns the sentence for a job whose GPUs have run nothing: its first communicator may never have
// been created.
std::string CreatingWords(const Job& job, const std::string& time) {
  if (job.is_creating) {
    return absl::StrCat("A communicator of ", JobWords(job), " has been in creation for ", time,
                        ", and its GPUs have run nothing. Which rank hasn't joined isn't known: "
                        "compare the stacks (py-spy dump).");
  }
  const bool is_one = job.processes.size() == 1;
  return absl::StrCat(
      "The ",
      is_one ? "GPU of a process" : absl::StrCat("GPUs of ", job.processes.size(), " processes"),
      " with NCCL ", is_one ? "has" : "have", " run nothing for ", time,
      ", and NCCL's RAS doesn't know ", is_one ? "it" : "them",
      ": creating the first communicator, probably.", RanksHereWords(job));
}

// "is stopped by a signal". Not for kFine.
std::string ConditionWords(const ProcessFacts& facts, bool is_one) {
  if (facts.condition == Condition::kStopped) {
    return absl::StrCat(is_one ? "is " : "are ", WhyNotRunning(facts.local->state));
  }
  if (facts.condition >= Condition::kDead) {
    return absl::StrCat(
        is_one ? "has" : "have", " ended (",
        facts.condition == Condition::kDead
            ? (is_one ? "NCCL's RAS considers it dead)" : "NCCL's RAS considers them dead)")
            : (is_one ? "its pid is gone, and NCCL's RAS gets no answer)"
                      : "their pids are gone, and NCCL's RAS gets no answer)"));
  }
  return absl::StrCat(is_one ? "does" : "do", " not answer NCCL's RAS",
                      facts.local == nullptr ? " (stopped, gone or unreachable)"
                      : facts.local->state == RunState::kDumpingCore
                          ? ": it has crashed, and dumps core"
                      : facts.local->state == RunState::kUninterruptible
                          ? ", and is in a driver call or I/O (state D)"
                          : ", though its process runs");
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

#ifdef __aarch64__
constexpr bool kIsArm = true;
#else
constexpr bool kIsArm = false;
#endif

struct KnownFault {
  const char *first, *fixed;  // releases; "": not known to be fixed
  bool is_of_arm, is_between_nodes;
  const char* symptom;
  const char* source;
};

constexpr KnownFault kKnownFaults[] = {
    {"2.24.0", "2.29.3", true, false,
     "a rank runs out of slots for network operations, and all GPUs stay busy",
     "NVIDIA/nccl issue 2353, release notes of 2.29.3"},
    {"2.29.2", "2.29.3", false, false, "a hang that 2.28 did not have",
     "pytorch/pytorch pull request 174338"},
    {"2.28.7", "2.30.4", false, true,
     "replays of CUDA graphs with collectives between nodes stall (--enforce-eager avoids it)",
     "vllm-project/vllm issue 52504"},
    {"2.27.3", "", false, false,
     "RAS' text report (ncclras without -f json) can crash the rank that answers; don't run it",
     "NVIDIA/nccl issue 2346"},
};

}  // namespace

std::string Grouped(uint64_t number) {
  std::string digits = absl::StrCat(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string RootWords(const JobRoot& root, const Job& job, int64_t between_ns) {
  const std::string tail =
      absl::StrCat(", and nothing has moved for ", DurationWords(between_ns), ".");
  const bool is_known = !root.ranks.empty();
  std::vector<Named> named, ahead;
  std::vector<std::string> names;
  for (const JobRank& rank : is_known ? root.ranks : root.perhaps) {
    const Named found = Find(rank, job);
    if (found.rank == nullptr) continue;
    const bool is_behind = is_known || HasFewer(*found.communicator, *found.rank);
    (is_behind ? named : ahead).push_back(found);
    if (is_behind) names.push_back(Name(found));
  }
  if (named.empty()) {
    return absl::StrCat(
        "no rank of ", JobWords(job),
        " is named: its ranks wait, and which rank they wait for can't be seen from outside", tail);
  }
  const Named& first = named.front();
  const std::string counts = CountWords(*first.communicator, *first.rank);
  const std::string who = absl::StrCat(JoinFirst(names, "; "), " of ", JobWords(job), " ");
  const bool is_one = named.size() == 1;
  const char* const has = is_one ? "has" : "have";
  switch (root.verdict) {
    case HangVerdict::kProcessStopped:
    case HangVerdict::kProcessGone:
    case HangVerdict::kRankNotSeen:
      return absl::StrCat(who, ConditionWords(*first.facts, is_one), tail);
    case HangVerdict::kCircularWait:
      return absl::StrCat(who, "seem to wait for each other in a circle", tail);
    case HangVerdict::kMismatched:
      return absl::StrCat(who, has, " launched other collectives (", counts, ")", tail,
                          GpuWords(named, job));
    default:
      break;
  }
  if (root.situation == Situation::kFinalized) {
    return absl::StrCat(who, has, " finalized or aborted a communicator in which others wait",
                        tail);
  }
  if (!counts.empty()) {
    return absl::StrCat(who, has, " launched ", counts, tail,
                        is_known ? GpuWords(named, job) : DoubtWords(named, ahead));
  }
  const std::size_t busy = job.uses[GpuUse::kBusy];
  return absl::StrCat(who, is_one ? "has a GPU that runs" : "have GPUs that run",
                      " nothing, while ", busy, busy == 1 ? " other is" : " others are", " busy",
                      tail,
                      job.unused < job.communicators.size() && job.has_counts
                          ? " All have launched as many collectives."
                          : "");
}

std::string SummaryWords(const Job& job, int64_t between_ns) {
  const std::string time = DurationWords(between_ns);
  if (job.moved != 0) {
    return absl::StrCat(
        Capital(JobWords(job)), " launches collectives: ", job.moved, " of ",
        job.communicators.size(), " communicators moved within ", time, ".",
        job.waiting == 0 ? ""
                         : absl::StrCat(" In the others ", job.waiting,
                                        job.waiting == 1 ? " GPU waits." : " GPUs wait."),
        job.unseen == 0
            ? ""
            : absl::StrCat(" Whether ", job.unseen,
                           job.unseen == 1 ? " further GPU waits" : " further GPUs wait",
                           " isn't known."));
  }
  if (job.unclear == job.communicators.size()) {
    return absl::StrCat("Only one of two answers of NCCL's RAS has the communicators of ",
                        JobWords(job), ": it has just begun, or wasn't asked. Next: run it again.");
  }
  if (job.uses.AreAll(GpuUse::kIdle)) {
    if (!job.has_counts || job.is_creating) return CreatingWords(job, time);
    return absl::StrCat("The GPUs of ", JobWords(job), " have run nothing for ", time,
                        ". It is idle, or a rank waits for a new communicator, which NCCL's RAS "
                        "doesn't show. Next: compare the stacks (py-spy dump).");
  }
  return absl::StrCat(
      Capital(JobWords(job)), " has launched no counted collective for ", time, ". ",
      job.uses[GpuUse::kShared] != 0
          ? "Which ranks wait isn't known: they share GPUs, which NVML doesn't tell apart."
      : job.uses.AreAll(GpuUse::kUnknown)
          ? "Whether its GPUs wait can't be seen here: there is no NVML, "
            "or they are on other hosts."
      : job.uses.AreAll(GpuUse::kBusy)
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
    const bool is_any_staying = std::any_of(communicator.ranks.begin(), communicator.ranks.end(),
                                            [](const RasRank& rank) { return !rank.has_left; });
    for (const RasRank& rank : communicator.ranks) {
      const ProcessFacts& facts = job.processes.at(KeyOf(rank));
      const auto who = [&] { return Capital(Name({&communicator, &rank, &facts})); };
      if (rank.async_error != 0 && rank.async_error != kInProgress) {
        notes.push_back(absl::StrCat(who(), " reports an asynchronous error of NCCL: ncclResult_t ",
                                     rank.async_error, "."));
      }
      const bool is_fine = facts.condition == Condition::kFine;
      // It may have left too early, in exit() for example, or after it waited as the others do.
      const bool has_left = is_fine && rank.has_left && is_any_staying && job.moved == 0;
      if ((has_left || !is_fine) && rank.pid != 0 && said.insert(KeyOf(rank)).second) {
        notes.push_back(
            absl::StrCat(who(), " ",
                         has_left ? "has finalized or aborted a communicator that others still have"
                                  : ConditionWords(facts, true),
                         "."));
      }
    }
    if (fewer.empty()) fewer = FewerWords(communicator);
  }
  if (verdict.roots.empty() && job.moved == 0 && !fewer.empty()) notes.push_back(std::move(fewer));
  return notes;
}

std::vector<std::string> KnownFaults(std::string_view nccl_version, bool has_nodes) {
  std::vector<std::string> faults;
  const std::string_view release = nccl_version.substr(0, nccl_version.find('+'));
  const int number = ReleaseOf(release);
  for (const KnownFault& each : kKnownFaults) {
    const std::string_view fixed = each.fixed;
    const bool is_fixed = !fixed.empty() && number >= ReleaseOf(fixed);
    if (number < ReleaseOf(each.first) || is_fixed || (each.is_of_arm && !kIsArm) ||
        (each.is_between_nodes && !has_nodes)) {
      continue;
    }
    faults.push_back(absl::StrCat("Known bug of NCCL ", release, ": ", each.symptom, ".",
                                  fixed.empty() ? "" : absl::StrCat(" Fixed in ", fixed, "."), " (",
                                  each.source, ")"));
  }
  return faults;
}

std::string SourceWords(const Job& job, const std::string& nccl_version, bool has_nvml) {
  std::vector<std::string> from;
  const std::string version = nccl_version.empty() ? "" : absl::StrCat(" (", nccl_version, ")");
  if (job.has_counts) from.push_back(absl::StrCat("NCCL's RAS", version));
  if (has_nvml) from.emplace_back("NVML");
  from.emplace_back("/proc");
  return absl::StrCat("From ", Listed(from),
                      job.is_endpoint_silent
                          ? ": the job's endpoint gave no data."
                          : ". Sizes, times and calls in graphs need the plugin: "
                            "NCCL_PROFILER_PLUGIN=pulse.");
}

}  // namespace nccl_pulse::outside
