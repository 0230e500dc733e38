#include "exporter/outside/job_snapshots.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/disjoint_sets.h"
#include "exporter/base/text_hash.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse::outside {
namespace {

// Returns null if the communicator has no such rank.
const RasRank* RankIn(const RasCommunicator& communicator, int32_t rank) {
  const auto& ranks = communicator.ranks;
  const auto found =
      std::lower_bound(ranks.begin(), ranks.end(), rank,
                       [](const RasRank& each, int32_t wanted) { return each.rank < wanted; });
  return found != ranks.end() && found->rank == rank ? &*found : nullptr;
}

// Returns the communicator, with the counts of their last answer for ranks that RAS misses.
RasCommunicator WithLastCounts(RasCommunicator communicator, const RasCommunicator* before) {
  for (RasRank& rank : communicator.ranks) {
    const RasRank* const was = before == nullptr ? nullptr : RankIn(*before, rank.rank);
    if (!rank.is_missing || was == nullptr || !was->has_counts) continue;
    rank.counts = was->counts;
    rank.has_counts = true;
  }
  return communicator;
}

// A communicator of a job, and the facts about its ranks.
struct Group {
  RasCommunicator communicator;
  Motion motion{};
  bool has_counts = true;
  std::vector<ProcessFacts*> facts;  // of each rank
  Counts least{};                    // of the ranks that have not left
  bool is_unequal = false;           // ranks differ in launches that wait for all ranks
  bool is_unused = true;             // see Job::unused
  bool is_shared_busy = false;       // a GPU that only its ranks share is busy
  bool is_computing_ahead = false;   // the GPU of a rank that is ahead computes
  bool is_held_up = false;           // ranks wait for one that is stopped, silent or gone
  Uses uses;                         // of the ranks that have not left; without stopped processes
  Uses of_job;
  std::vector<const HostProcess*> unloaded;

  bool IsAhead(const RasRank& rank) const {
    for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
      if (WaitsForAll(kCountedOps[op]) && rank.counts[op] > least[op]) return true;
    }
    return false;
  }
  // True if the rank waits for a rank with lower counts. A GPU that runs nothing does not wait, nor
  // does one that computes, unless more of the job's GPUs compute than wait.
  bool IsWaiting(std::size_t at) const {
    const GpuUse use = facts[at]->gpu_use;
    return IsAhead(communicator.ranks[at]) && use != GpuUse::kIdle &&
           (use != GpuUse::kMixed || !of_job.DoFewCompute());
  }
  // True if this rank runs, and others wait until it launches.
  bool IsBehind(std::size_t at) const {
    const RasRank& rank = communicator.ranks[at];
    return rank.has_counts && !rank.has_left && !IsAhead(rank) &&
           facts[at]->condition != Condition::kStopped && facts[at]->gpu_use != GpuUse::kBusy;
  }
  bool HasIdleFew() const {
    return !is_unequal && !is_computing_ahead && uses[GpuUse::kIdle] != 0 &&
           uses[GpuUse::kIdle] <= uses[GpuUse::kBusy];
  }
};

class Maker {
 public:
  explicit Maker(const Observation& seen) : seen_(seen) {
    for (const HostProcess& process : seen.processes) {
      by_own_pid_.emplace(std::pair(process.network, process.own_pid), &process);
      by_pid_.emplace(process.pid, &process);
    }
    for (const auto& [id, communicator] : seen.after.communicators) {
      for (const RasRank& rank : communicator.ranks) {
        if (const HostProcess* local = Local(rank)) {
          covered_.insert(local->pid);
          if (local->pid == local->own_pid) hosts_.insert(rank.host);
        }
      }
    }
  }

  std::vector<Job> Make() {
    const auto& communicators = seen_.after.communicators;
    for (const auto& [hashes, communicator] : communicators) {
      const auto found = seen_.before.communicators.find(hashes);
      const RasCommunicator* const before =
          found == seen_.before.communicators.end() ? nullptr : &found->second;
      RasCommunicator added = WithLastCounts(communicator, before);
      // An ID is the sum of the hashes of a host and a pid, so communicators can share one.
      const auto others = communicators.lower_bound({hashes.first, 0});
      if (std::next(others) != communicators.upper_bound({hashes.first, UINT64_MAX})) {
        added.id ^= hashes.second;
      }
      Motion motion = MotionOf(before, communicator);
      if (!seen_.before.is_any && !communicator.is_creating) {
        motion = Motion::kAtRest;
        for (RasRank& rank : added.ranks) rank.counts = {};
      }
      Add(std::move(added), motion, true);
    }
    AddUnknownToRas();
    std::map<std::size_t, std::vector<Group*>> jobs;
    for (std::size_t i = 0; i < groups_.size(); ++i) jobs[sets_.SetOf(i)].push_back(&groups_[i]);
    std::vector<Job> made;
    for (const auto& [set, groups] : jobs) made.push_back(MakeJob(groups));
    return made;
  }

 private:
  // Compares the counts of each communicator's ranks. Excuses ranks that were stopped or ended (by a
  // debugger or a watchdog, for example) while they may have waited, and doubts ranks that may wait for
  // the only one ahead. `all`: the job's processes.
  static void Compare(const std::vector<Group*>& groups, const std::set<ProcessFacts*>& all,
                      const Uses& uses) {
    std::set<ProcessFacts*> ahead, behind;
    for (Group* group : groups) {
      group->of_job = uses;
      const bool has_moving = std::any_of(group->facts.begin(), group->facts.end(),
                                          [](const ProcessFacts* each) { return each->is_moving; });
      for (ProcessFacts* each : group->facts) each->is_needed |= !has_moving;
      const std::vector<RasRank>& ranks = group->communicator.ranks;
      std::set<ProcessFacts*> first, last;
      bool is_any_behind = false;
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (!ranks[i].has_counts || ranks[i].has_left) continue;
        const bool is_ahead = group->IsAhead(ranks[i]);
        (is_ahead ? first : last).insert(group->facts[i]);
        is_any_behind |= group->IsBehind(i);
        if (ranks[i].is_missing) continue;
        group->is_unequal |= group->IsWaiting(i);
        group->is_computing_ahead |= is_ahead && group->facts[i]->gpu_use == GpuUse::kMixed;
      }
      if (group->motion != Motion::kAtRest || first.empty()) continue;
      ahead.merge(first);
      behind.merge(last);
      for (std::size_t i = 0; i < ranks.size() && group->is_unequal && is_any_behind; ++i) {
        ProcessFacts* const facts = group->facts[i];
        facts->is_excused |= facts->condition == Condition::kStopped
                                 ? facts->gpu_use == GpuUse::kBusy
                                 : facts->condition >= Condition::kDead && !ranks[i].has_counts;
      }
    }
    const bool is_any_computing =
        uses.DoFewCompute() && std::any_of(all.begin(), all.end(), [](const ProcessFacts* each) {
          return each->condition == Condition::kFine && each->gpu_use == GpuUse::kMixed;
        });
    for (ProcessFacts* each : all) {
      each->is_excused |=
          each->condition != Condition::kFine &&
          (!each->is_needed || (is_any_computing && each->condition != Condition::kStopped));
      each->is_doubted =
          ahead.size() == 1 && behind.size() >= 2 && behind.count(each) > ahead.count(each);
    }
    for (Group* group : groups) {
      Condition worst{};
      for (const ProcessFacts* each : group->facts) {
        if (!each->is_excused) worst = std::max(worst, each->condition);
      }
      const bool is_any_busy = group->uses[GpuUse::kBusy] != 0 || group->is_shared_busy;
      // A GPU that computes or runs nothing would show that its rank does not wait.
      const bool is_none_known =
          group->has_counts && group->uses[GpuUse::kIdle] + group->uses[GpuUse::kMixed] == 0 &&
          (uses[GpuUse::kBusy] != 0 || uses[GpuUse::kIdle] + uses[GpuUse::kMixed] == 0);
      group->is_held_up =
          is_any_busy ? worst != Condition::kFine : is_none_known && worst >= Condition::kDead;
    }
  }

  // Returns the rank's process on this host; null: it is on another host, or ambiguous.
  const HostProcess* Local(const RasRank& rank) const {
    const auto here = seen_.addresses.find(rank.host);
    if (here == seen_.addresses.end()) return nullptr;
    const auto [first, end] = by_own_pid_.equal_range({here->second, rank.pid});
    return std::distance(first, end) == 1 ? first->second : nullptr;
  }

  // True if the rank's pid is of this host's own namespace, and no such process exists. A process
  // whose files don't answer may be any rank's.
  bool IsGone(const RasRank& rank) const {
    return seen_.unread == 0 && hosts_.count(rank.host) != 0 &&
           by_own_pid_.count({seen_.addresses.at(rank.host), rank.pid}) == 0;
  }

  // Returns the condition of the rank's process, by this answer and /proc.
  Condition ConditionOf(const RasRank& rank, const HostProcess* local) const {
    if (local != nullptr && *WhyNotRunning(local->state) != '\0') return Condition::kStopped;
    if (!rank.is_missing) return Condition::kFine;
    if (IsGone(rank)) return Condition::kGone;
    if (rank.is_dead && local == nullptr) return Condition::kDead;
    const bool is_proven = seen_.before.proves_absence && seen_.after.proves_absence;
    return is_proven || rank.is_dead ? Condition::kSilent : Condition::kFine;
  }

  // RAS' index is valid in the rank's container, which may have other GPUs than this host.
  const HostGpu* GpuOf(const RasRank& rank, const HostProcess& local) const {
    const HostGpu* of_index = nullptr;
    const HostGpu* of_pid = nullptr;
    int with_pid = 0;
    for (const HostGpu& gpu : seen_.gpus) {
      if (gpu.index == rank.nvml_dev) of_index = &gpu;
      if (!IsOn(gpu, local.pid)) continue;
      of_pid = &gpu;
      ++with_pid;
    }
    return with_pid == 1 || of_index == nullptr ? of_pid : of_index;
  }

  ProcessFacts* FactsOf(const RasRank& rank, const HostProcess* local) {
    ProcessFacts& facts = facts_[KeyOf(rank)];
    facts.condition = std::max(facts.condition, ConditionOf(rank, local));
    facts.gpu = rank.nvml_dev;
    facts.local = local;
    if (const HostGpu* gpu = local == nullptr ? nullptr : GpuOf(rank, *local)) {
      facts.gpu = gpu->index;
      const bool is_shared = gpu->pids.size() > 1 && gpu->use != GpuUse::kIdle;
      facts.gpu_use = is_shared ? GpuUse::kShared : gpu->use;
    }
    return &facts;
  }

  // True if a kernel of one of these ranks waits on this GPU: it is busy, and no other process with
  // NCCL uses it. `running`, `others`: pids of the ranks.
  bool IsSharedAndBusy(const HostGpu& gpu, const std::set<int32_t>& running,
                       const std::set<int32_t>& others) const {
    return gpu.use == GpuUse::kBusy && gpu.pids.size() > 1 &&
           std::any_of(gpu.pids.begin(), gpu.pids.end(),
                       [&](int32_t pid) { return running.count(pid) != 0; }) &&
           std::all_of(gpu.pids.begin(), gpu.pids.end(), [&](int32_t pid) {
             return running.count(pid) != 0 || others.count(pid) != 0 || by_pid_.count(pid) == 0;
           });
  }

  void Add(RasCommunicator added, Motion motion, bool has_counts) {
    const std::size_t own = sets_.Add();
    Group& group = groups_.emplace_back();
    group.communicator = std::move(added);
    const RasCommunicator& communicator = group.communicator;
    group.motion = motion;
    group.has_counts = has_counts;
    group.least.fill(UINT64_MAX);
    std::set<int32_t> running, stopped;  // pids
    for (const RasRank& rank : communicator.ranks) {
      group.is_unused &= rank.counts == Counts{};
      const HostProcess* const local = has_counts ? Local(rank) : by_pid_.at(rank.pid);
      ProcessFacts* const facts = FactsOf(rank, local);
      group.facts.push_back(facts);
      if (rank.pid != 0) {
        sets_.Join(group_of_.try_emplace({rank.host, rank.pid}, own).first->second, own);
      }
      const bool is_stopped = facts->condition == Condition::kStopped;
      if (local != nullptr) (is_stopped ? stopped : running).insert(local->pid);
      if (!rank.has_counts) continue;
      group.uses[facts->gpu_use] += is_stopped || rank.has_left ? 0 : 1;
      for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
        uint64_t& most = group.communicator.most[op];
        most = std::max(most, rank.counts[op]);
        if (!rank.has_left) group.least[op] = std::min(group.least[op], rank.counts[op]);
      }
    }
    for (const HostGpu& gpu : seen_.gpus) {
      group.is_shared_busy |= IsSharedAndBusy(gpu, running, stopped);
    }
  }

  void AddUnknownToRas() {
    const auto key_of = [](const HostProcess& process) {
      return std::tuple(process.user, process.slurm_job_id, process.world_size);
    };
    std::map<std::tuple<uid_t, std::string, std::string>, std::vector<const HostProcess*>> jobs;
    for (const HostProcess& process : seen_.processes) {
      if (covered_.count(process.pid) != 0 || seen_.gpus.empty()) continue;
      if (process.has_plugin || !MayBeRank(process, seen_.gpus)) continue;
      jobs[key_of(process)].push_back(&process);
    }
    for (const auto& [key, processes] : jobs) {
      if (processes.size() < 2 && SizeOf(std::get<2>(key)) < 2) continue;
      RasCommunicator communicator;
      communicator.id = TextHash(absl::StrCat(std::get<0>(key), "\n", std::get<1>(key), "\n",
                                              std::get<2>(key), "\nwithout RAS")) |
                        1;
      std::map<int32_t, const HostProcess*> by_rank;
      for (const HostProcess* process : processes) {
        int32_t number = 0;
        if (absl::SimpleAtoi(process->global_rank, &number)) by_rank.emplace(number, process);
      }
      if (by_rank.size() != processes.size() || by_rank.begin()->first < 0) {
        by_rank.clear();
        for (const HostProcess* process : processes) by_rank.emplace(by_rank.size(), process);
      }
      for (const auto& [number, process] : by_rank) {
        RasRank& rank = communicator.ranks.emplace_back();
        rank.rank = number;
        rank.host = seen_.hostname;
        rank.pid = process->pid;
      }
      communicator.size = static_cast<int32_t>(communicator.ranks.size());
      Add(communicator, Motion::kAtRest, false);
      for (const HostProcess& each : seen_.unloaded) {
        const bool is_alike = each.is_task_rank == processes.front()->is_task_rank;
        if (is_alike && key_of(each) == key) groups_.back().unloaded.push_back(&each);
      }
    }
  }

  Job MakeJob(const std::vector<Group*>& groups) {
    Job job;
    job.set.is_of_all_nodes = true;
    job.is_creating = !seen_.before.proves_absence && !seen_.after.proves_absence;
    std::set<ProcessFacts*> all, present;  // present: those that have not left all communicators
    for (const Group* group : groups) {
      all.insert(group->facts.begin(), group->facts.end());
      for (std::size_t i = 0; i < group->facts.size(); ++i) {
        group->facts[i]->is_moving |= group->motion == Motion::kMoved;
        if (!group->communicator.ranks[i].has_left) present.insert(group->facts[i]);
      }
    }
    for (ProcessFacts* each : all) {
      const bool is_fine = each->condition == Condition::kFine;
      job.not_fine += is_fine ? 0 : 1;
      job.waiting += each->gpu_use == GpuUse::kBusy && !each->is_moving ? 1 : 0;
      const bool is_unclear = each->gpu_use == GpuUse::kUnknown || each->gpu_use == GpuUse::kShared;
      job.unseen += is_unclear && !each->is_moving && present.count(each) != 0 ? 1 : 0;
      if (is_fine || each->condition == Condition::kStopped) ++job.uses[each->gpu_use];
    }
    Compare(groups, all, job.uses);
    std::map<std::pair<std::string, int32_t>, ProcessSnapshot> processes;
    for (const Group* group : groups) {
      const bool has_moved = group->motion == Motion::kMoved;
      job.moved += has_moved ? 1 : 0;
      job.unclear += !has_moved && group->motion != Motion::kAtRest ? 1 : 0;
      job.unused += group->is_unused && group->communicator.size > 1 ? 1 : 0;
      job.has_counts |= group->has_counts;
      job.unloaded.insert(job.unloaded.end(), group->unloaded.begin(), group->unloaded.end());
      std::set<std::string> hosts;
      int32_t known = 0;
      for (std::size_t i = 0; i < group->facts.size(); ++i) {
        hosts.insert(group->communicator.ranks[i].host);
        known += IsDoubtful(group->communicator.ranks[i], *group->facts[i]) ? 0 : 1;
      }
      for (std::size_t i = 0; i < group->communicator.ranks.size(); ++i) {
        const RasRank& rank = group->communicator.ranks[i];
        const ProcessFacts& facts = *group->facts[i];
        job.processes[KeyOf(rank)] = facts;
        if (IsDoubtful(rank, facts) || facts.condition == Condition::kSilent) continue;
        const auto [found, is_new] = processes.try_emplace({rank.host, rank.pid});
        if (is_new) found->second = SnapshotOf(rank, facts);
        CommunicatorSnapshot& made = found->second.communicators.emplace_back();
        made = SnapshotOf(*group, i);
        made.nranks = known;
        made.nnodes = static_cast<int32_t>(hosts.size());
      }
      job.communicators.emplace(group->communicator.id, group->communicator);
    }
    for (auto& [name, process] : processes) job.set.processes.push_back(std::move(process));
    return job;
  }

  // Returns a time before the first answer that is old enough for a process to count as stopped.
  int64_t LongAgo() const { return std::min(seen_.since_ns, seen_.now_ns - 2 * kStoppedAfterNs); }

  // True if the rank is excused, or too little is known to judge it: its process, its calls when it
  // left, or whether it still runs (RAS misses it, but the answer proves no absence).
  static bool IsDoubtful(const RasRank& rank, const ProcessFacts& facts) {
    return rank.pid == 0 || (rank.has_left && !rank.has_counts) || facts.is_excused ||
           (rank.is_missing && facts.condition == Condition::kFine);
  }

  ProcessSnapshot SnapshotOf(const RasRank& rank, const ProcessFacts& facts) const {
    ProcessSnapshot process;
    process.is_from_outside = true;
    process.hostname = rank.host;
    process.pid = rank.pid;
    process.poller = PollerState::kRunning;
    process.last_poll_realtime_ns = seen_.now_ns;
    if (facts.local != nullptr) {
      process.run_state = facts.local->state;
      process.pid = process.seen_pid = facts.local->pid;
      process.user = facts.local->user;
      process.start_realtime_ns = facts.local->start_realtime_ns;
      process.global_rank = facts.local->global_rank;
      process.job_id = facts.local->slurm_job_id;
    }
    if (facts.condition >= Condition::kDead) {
      process.end = ProcessEnd::kLost;
      process.end_realtime_ns = seen_.since_ns;
    } else if (facts.condition == Condition::kStopped) {
      process.last_poll_realtime_ns = LongAgo();
    }
    return process;
  }

  CommunicatorSnapshot SnapshotOf(const Group& group, std::size_t at) const {
    const RasRank& rank = group.communicator.ranks[at];
    const ProcessFacts& facts = *group.facts[at];
    CommunicatorSnapshot made;
    made.comm_id = group.communicator.id;
    made.rank = rank.rank;
    made.gpu = facts.gpu < 0 ? "" : absl::StrCat(facts.gpu);
    made.finalized = rank.has_left;
    made.init_realtime_ns = 1;
    made.work.gpu_use = facts.is_doubted ? GpuUse::kUnknown : facts.gpu_use;
    std::size_t most = kCountedOps.size();
    for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
      if (rank.counts[op] == 0) continue;
      made.calls.push_back({kCountedOps[op], -1, "", false, rank.counts[op], 0});
      const bool is_better = WaitsForAll(kCountedOps[op]) &&
                             (most == kCountedOps.size() || rank.counts[op] > rank.counts[most]);
      if (is_better) most = op;
    }
    if (most != kCountedOps.size()) made.last_call_op = kCountedOps[most];
    made.last_call_size_class = -1;
    made.launches = Total(rank.counts);
    made.has_heartbeat = true;
    made.launches_completed = made.launches;
    made.last_completion_realtime_ns = made.last_launch_realtime_ns = LongAgo();
    if (group.motion == Motion::kMoved || rank.is_missing || rank.has_left) return made;
    if (group.motion == Motion::kAtRest && group.is_unequal) {
      if (group.IsWaiting(at)) {
        made.launches_completed = std::min(Total(group.least), made.launches - 1);
        made.oldest_inflight_realtime_ns = seen_.since_ns;
      }
      return made;
    }
    const bool is_unclear = facts.gpu_use == GpuUse::kUnknown || facts.gpu_use == GpuUse::kShared;
    const bool waits = facts.condition != Condition::kStopped &&
                       (facts.gpu_use == GpuUse::kBusy
                            ? group.is_held_up || group.HasIdleFew()
                            : is_unclear && group.is_held_up && group.uses[GpuUse::kIdle] == 0);
    if (group.motion == Motion::kAtRest && waits) {
      // A call that this rank has launched and the idle ranks have not.
      made.calls.push_back({kUnknownCollective, -1, "", false, 1, 0});
      made.last_call_op = kUnknownCollective;
      ++made.launches;
      made.oldest_inflight_realtime_ns = seen_.since_ns;
      return made;
    }
    made.has_heartbeat = group.motion == Motion::kAtRest && facts.gpu_use == GpuUse::kIdle;
    return made;
  }

  const Observation& seen_;
  std::multimap<std::pair<uint64_t, int32_t>, const HostProcess*> by_own_pid_;
  std::map<int32_t, const HostProcess*> by_pid_;
  std::set<std::string> hosts_;  // addresses of this host whose ranks are in its own PID namespace
  std::set<int32_t> covered_;    // pids that RAS knows
  std::map<ProcessKey, ProcessFacts> facts_;
  std::map<std::pair<std::string, int32_t>, std::size_t> group_of_;
  std::vector<Group> groups_;
  DisjointSets sets_;
};

}  // namespace

Motion MotionOf(const RasCommunicator* before, const RasCommunicator& after) {
  Motion motion = Motion::kUnclear;
  if (before == nullptr || before->is_creating || after.is_creating) return motion;
  for (const RasRank& rank : after.ranks) {
    const RasRank* const was = RankIn(*before, rank.rank);
    if (was == nullptr || !rank.has_counts || !was->has_counts) continue;
    for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
      if (rank.counts[op] < was->counts[op]) return Motion::kBack;
    }
    if (motion != Motion::kMoved) {
      motion = rank.counts == was->counts ? Motion::kAtRest : Motion::kMoved;
    }
  }
  return motion;
}

bool HasFewer(const RasCommunicator& communicator, const RasRank& rank) {
  for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
    if (rank.counts[op] < communicator.most[op]) return true;
  }
  return false;
}

const RasRank* RankOf(const Job& job, uint64_t comm_id, int32_t rank) {
  const auto communicator = job.communicators.find(comm_id);
  return communicator == job.communicators.end() ? nullptr : RankIn(communicator->second, rank);
}

int32_t SizeOf(const std::string& variable) {
  int32_t size = 0;
  const bool is_size = absl::SimpleAtoi(variable, &size) && size > 0;
  return is_size && static_cast<std::size_t>(size) <= kMostAnswerRanks ? size : 0;
}

bool IsOn(const HostGpu& gpu, int32_t pid) {
  return std::find(gpu.pids.begin(), gpu.pids.end(), pid) != gpu.pids.end();
}

bool MayBeRank(const HostProcess& process, const std::vector<HostGpu>& gpus) {
  return gpus.empty() || std::any_of(gpus.begin(), gpus.end(), [&process](const HostGpu& gpu) {
           return IsOn(gpu, process.pid);
         });
}

std::vector<Job> JobsOf(const Observation& seen) { return Maker(seen).Make(); }

}  // namespace nccl_pulse::outside
