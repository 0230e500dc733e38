#include "exporter/diagnosis/job_verdict.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "exporter/diagnosis/busiest_host.h"
#include "exporter/diagnosis/job_processes.h"
#include "exporter/diagnosis/job_stragglers.h"
#include "exporter/diagnosis/rank_view.h"
#include "exporter/diagnosis/slowed.h"

namespace nccl_pulse {
namespace {

// How certain it is that one should look here.
enum class Certainty { kNamed, kUnseen, kNobodyNamed, kConsequence };

Certainty CertaintyOf(const Hang& hang) {
  switch (hang.verdict) {
    case HangVerdict::kDriverError:
      return hang.suspects.empty() ? Certainty::kConsequence : Certainty::kNamed;
    case HangVerdict::kBlockedElsewhere:
      return Certainty::kConsequence;
    case HangVerdict::kRankNotSeen:
      return Certainty::kUnseen;
    case HangVerdict::kPointToPoint:
    case HangVerdict::kNoProgress:
    case HangVerdict::kUnknown:
      return Certainty::kNobodyNamed;
    default:
      return Certainty::kNamed;
  }
}

class JobJudge {
 public:
  JobJudge(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis, int64_t now_ns)
      : views_(GroupByCommunicator(snapshots, now_ns)), diagnosis_(diagnosis) {
    for (const ProcessSnapshot& process : snapshots.processes) {
      if (process.end == ProcessEnd::kLive) ++verdict_.processes;
    }
  }

  JobVerdict Make() {
    for (const CommunicatorDiagnosis& each : diagnosis_) {
      if (!each.hang) continue;
      ++verdict_.hung_communicators;
      if (each.hang->verdict == HangVerdict::kBlockedElsewhere) ++verdict_.blocked_communicators;
      AddWaits(each);
    }
    AddRoots(Certainty::kNamed);
    // A wait that is usual must not hide one that is not.
    if (AreAllUsual()) AddRoots(Certainty::kUnseen);
    if (AreAllUsual()) AddRoots(Certainty::kNobodyNamed);
    if (AreAllUsual()) AddRoots(Certainty::kConsequence);
    // Who waits elsewhere stands behind the one that it waits for, however long either waits.
    std::stable_sort(verdict_.roots.begin(), verdict_.roots.end(),
                     [](const JobRoot& a, const JobRoot& b) {
                       const bool a_follows = a.verdict == HangVerdict::kBlockedElsewhere;
                       const bool b_follows = b.verdict == HangVerdict::kBlockedElsewhere;
                       return std::tie(a.is_usual, a_follows, a.since_realtime_ns) <
                              std::tie(b.is_usual, b_follows, b.since_realtime_ns);
                     });
    for (auto& [process, wait] : waits_) verdict_.waits.push_back(std::move(wait));
    std::sort(verdict_.waits.begin(), verdict_.waits.end(), [](const auto& a, const auto& b) {
      return std::tie(a.since_realtime_ns, a.rank.comm_id, a.rank.rank) <
             std::tie(b.since_realtime_ns, b.rank.comm_id, b.rank.rank);
    });
    // What was slow before a hang is not what is wrong now.
    if (AreAllUsual()) AddStragglers();
    return std::move(verdict_);
  }

 private:
  // Calls that are compared say more than the past: of a job in which they name somebody it is not
  // asked.
  void AddStragglers() {
    std::vector<JobStraggler>& stragglers = verdict_.stragglers;
    stragglers = FindJobStragglers(views_, diagnosis_);
    const std::size_t by_calls = stragglers.size();
    for (const JobProcesses& job : JobsOf(views_)) {
      const auto is_of_job = [&job](const JobStraggler& straggler) {
        return std::any_of(straggler.ranks.begin(), straggler.ranks.end(),
                           [&job](const JobRank& rank) { return job.Has(rank.process); });
      };
      const auto end = stragglers.begin() + static_cast<std::ptrdiff_t>(by_calls);
      if (std::any_of(stragglers.begin(), end, is_of_job)) continue;
      if (std::optional<JobStraggler> slowed = FindSlowed(job)) {
        stragglers.push_back(std::move(*slowed));
      } else if (verdict_.doubt.empty()) {
        verdict_.doubt = DoubtOfBusiestHost(job);
      }
    }
  }

  const CommunicatorView* ViewOf(uint64_t comm_id) const {
    const auto found = std::lower_bound(
        views_.begin(), views_.end(), comm_id,
        [](const CommunicatorView& view, uint64_t id) { return view.comm_id < id; });
    return found != views_.end() && found->comm_id == comm_id ? &*found : nullptr;
  }

  JobRank Find(uint64_t comm_id, int32_t number) const {
    const CommunicatorView* view = ViewOf(comm_id);
    if (view == nullptr) return {comm_id, number};
    const auto found =
        std::lower_bound(view->ranks.begin(), view->ranks.end(), number,
                         [](const RankView& rank, int32_t wanted) { return rank.rank() < wanted; });
    if (found == view->ranks.end() || found->rank() != number) return {comm_id, number};
    return {comm_id, number, found->process, found->communicator};
  }

  void AddWaits(const CommunicatorDiagnosis& communicator) {
    const Hang& hang = *communicator.hang;
    if (hang.verdict == HangVerdict::kMismatched) return;
    for (const int32_t number : hang.waiting) {
      const JobRank rank = Find(communicator.comm_id, number);
      if (rank.process == nullptr) continue;
      JobWait& wait = waits_[rank.process];
      if (wait.rank.process != nullptr && wait.since_realtime_ns <= hang.since_realtime_ns)
        continue;
      wait = {rank, hang.since_realtime_ns, hang.op, hang.verdict};
    }
  }

  std::vector<JobRank> Named(const CommunicatorDiagnosis& communicator) const {
    const Hang& hang = *communicator.hang;
    std::vector<JobRank> named;
    if (hang.verdict == HangVerdict::kCircularWait) {
      for (const CircleStep& step : hang.circle) named.push_back(Find(step.comm_id, step.rank));
      return named;
    }
    for (const int32_t number : hang.suspects) named.push_back(Find(communicator.comm_id, number));
    return named;
  }

  bool AreAllUsual() const {
    return std::all_of(verdict_.roots.begin(), verdict_.roots.end(),
                       [](const JobRoot& root) { return root.is_usual; });
  }

  // Candidates in a communicator in which nobody is named.
  std::vector<JobRank> Perhaps(uint64_t comm_id) const {
    std::vector<JobRank> perhaps;
    const CommunicatorView* view = ViewOf(comm_id);
    if (view == nullptr) return perhaps;
    for (const RankView& rank : view->ranks) {
      if (rank.state != RankView::State::kLive || !rank.activity.is_idle()) continue;
      if (waits_.count(rank.process) != 0) continue;
      perhaps.push_back({comm_id, rank.rank(), rank.process, rank.communicator});
    }
    return perhaps;
  }

  // Adds a root for each hang of this certainty. Hangs that share a process have one root.
  void AddRoots(Certainty certainty) {
    std::unordered_map<const ProcessSnapshot*, std::size_t> root_of;
    std::vector<JobRoot> roots;
    for (const CommunicatorDiagnosis& each : diagnosis_) {
      if (!each.hang || CertaintyOf(*each.hang) != certainty) continue;
      const std::vector<JobRank> named = Named(each);
      std::size_t at = roots.size();
      for (const JobRank& rank : named) {
        const auto found = root_of.find(rank.process);
        if (found != root_of.end()) at = std::min(at, found->second);
      }
      if (at == roots.size()) roots.emplace_back();
      JobRoot& root = roots[at];
      const Hang& hang = *each.hang;
      const bool is_first =
          root.communicators.empty() || std::tie(hang.is_usual, hang.since_realtime_ns) <
                                            std::tie(root.is_usual, root.since_realtime_ns);
      if (is_first) {
        root.verdict = hang.verdict;
        root.is_usual = hang.is_usual;
        root.since_realtime_ns = hang.since_realtime_ns;
        root.op = hang.op;
        root.missing_call = hang.missing_call;
        root.text = hang.text;
        root.is_in_replay = hang.replay.graph != 0;
        root.is_queued = hang.is_queued;
      }
      root.communicators.push_back(each.comm_id);
      for (const JobRank& rank : named) {
        // Ranks that nobody has seen may be one process or many: all of them are in one root.
        if (rank.process == nullptr || root_of.try_emplace(rank.process, at).second) {
          root.ranks.push_back(rank);
        }
        if (rank.process == nullptr) root_of.try_emplace(nullptr, at);
      }
      if (certainty == Certainty::kNobodyNamed) {
        const std::vector<JobRank> perhaps = Perhaps(each.comm_id);
        root.perhaps.insert(root.perhaps.end(), perhaps.begin(), perhaps.end());
      }
    }
    verdict_.roots.insert(verdict_.roots.end(), std::make_move_iterator(roots.begin()),
                          std::make_move_iterator(roots.end()));
  }

  const std::vector<CommunicatorView> views_;
  const DiagnosisResult& diagnosis_;
  std::map<const ProcessSnapshot*, JobWait> waits_;
  JobVerdict verdict_;
};

}  // namespace

JobVerdict JudgeJob(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                    int64_t now_realtime_ns) {
  return JobJudge(snapshots, diagnosis, now_realtime_ns).Make();
}

bool IsAnotherLookWorthwhile(const DiagnosisResult& diagnosis, const JobVerdict& verdict) {
  if (!verdict.roots.empty()) return false;
  std::map<uint64_t, int32_t> late;  // perhaps, by communicator
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (each.perhaps_late) late[each.comm_id] = each.perhaps_late->rank;
  }
  if (verdict.stragglers.empty()) return !late.empty();
  // Who is named may be late because it waits there for one who is not.
  std::set<uint64_t> of_named;
  for (const JobStraggler& straggler : verdict.stragglers) {
    for (const JobRank& named : straggler.ranks) {
      for (const CommunicatorSnapshot& communicator : named.process->communicators) {
        const auto found = late.find(communicator.comm_id);
        if (found == late.end()) continue;
        if (found->second == communicator.rank) {
          late.erase(found);
        } else {
          of_named.insert(communicator.comm_id);
        }
      }
    }
  }
  return std::any_of(of_named.begin(), of_named.end(),
                     [&late](uint64_t comm_id) { return late.count(comm_id) != 0; });
}

}  // namespace nccl_pulse
