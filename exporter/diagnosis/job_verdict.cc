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

#include "exporter/diagnosis/job_stragglers.h"
#include "exporter/diagnosis/rank_view.h"
#include "exporter/diagnosis/slowed.h"

namespace nccl_pulse {
namespace {

class JobJudge {
 public:
  JobJudge(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis, int64_t now_ns)
      : views_(GroupByCommunicator(snapshots, now_ns)),
        diagnosis_(diagnosis),
        jobs_(JobsOf(views_)),
        has_root_(jobs_.size()) {
    for (const ProcessSnapshot& process : snapshots.processes) {
      if (process.end == ProcessEnd::kLive) ++verdict_.processes;
    }
  }

  JobVerdict Make() {
    for (std::size_t i = 0; i < diagnosis_.size(); ++i) {
      const std::optional<Hang>& hang = diagnosis_[i].hang;
      if (!hang) continue;
      ++verdict_.hung_communicators;
      if (hang->verdict == HangVerdict::kBlockedElsewhere) ++verdict_.blocked_communicators;
      AddWaits(i, *hang);
    }
    for (std::size_t job = 0; job < jobs_.size(); ++job) {
      AddRoots(job);
    }
    // Who waits elsewhere stands behind the one that it waits for, however long either waits.
    std::stable_sort(verdict_.roots.begin(), verdict_.roots.end(),
                     [](const JobRoot& a, const JobRoot& b) {
                       const bool a_follows = a.verdict == HangVerdict::kBlockedElsewhere;
                       const bool b_follows = b.verdict == HangVerdict::kBlockedElsewhere;
                       return std::tie(a.is_usual, a_follows, a.since_realtime_ns) <
                              std::tie(b.is_usual, b_follows, b.since_realtime_ns);
                     });
    // Work in flight is not a host that waits.
    for (const JobRoot& root : verdict_.roots) {
      if (root.verdict != HangVerdict::kRankNotCalled) continue;
      for (const JobRank& rank : root.ranks) waits_.erase(rank.process);
    }
    for (auto& [process, wait] : waits_) verdict_.waits.push_back(std::move(wait));
    std::sort(verdict_.waits.begin(), verdict_.waits.end(), [](const auto& a, const auto& b) {
      return std::tie(a.since_realtime_ns, a.rank.comm_id, a.rank.rank) <
             std::tie(b.since_realtime_ns, b.rank.comm_id, b.rank.rank);
    });
    AddStragglers();
    return std::move(verdict_);
  }

 private:
  // Calls that are compared say more than the past: of a job in which they name somebody it is not
  // asked. Nor is a job in which something hangs: what was slow before is not what is wrong now.
  void AddStragglers() {
    std::vector<bool> is_known = has_root_;  // of each job
    for (JobStraggler& straggler : FindJobStragglers(views_, diagnosis_)) {
      const auto job =
          static_cast<std::size_t>(std::find_if(jobs_.begin(), jobs_.end(),
                                                [&straggler](const JobProcesses& each) {
                                                  return each.Has(straggler.ranks.front().process);
                                                }) -
                                   jobs_.begin());
      if (has_root_[job]) continue;
      is_known[job] = true;
      verdict_.stragglers.push_back(std::move(straggler));
    }
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (is_known[i]) continue;
      if (std::optional<JobStraggler> slowed = FindSlowed(jobs_[i])) {
        verdict_.stragglers.push_back(std::move(*slowed));
      } else if (verdict_.doubt.empty()) {
        verdict_.doubt = DoubtOfBusiestHost(jobs_[i]);
      }
    }
  }

  JobRank Find(std::size_t view, int32_t number) const {
    const uint64_t comm_id = views_[view].comm_id;
    const RankView* rank = views_[view].Find(number);
    if (rank == nullptr) return {comm_id, number};
    return {comm_id, number, rank->process, rank->communicator};
  }

  // In one of the job's communicators.
  JobRank Find(const JobProcesses& job, const CircleStep& step) const {
    for (const CommunicatorView* view : job.views) {
      if (view->comm_id != step.comm_id) continue;
      return Find(static_cast<std::size_t>(view - views_.data()), step.rank);
    }
    return {step.comm_id, step.rank};
  }

  void AddWaits(std::size_t view, const Hang& hang) {
    if (hang.verdict == HangVerdict::kMismatched) return;
    for (const int32_t number : hang.waiting) {
      const JobRank rank = Find(view, number);
      if (rank.process == nullptr) continue;
      JobWait& wait = waits_[rank.process];
      if (wait.rank.process != nullptr && wait.since_realtime_ns <= hang.since_realtime_ns)
        continue;
      wait = {rank, hang.since_realtime_ns, hang.op, hang.verdict, hang.suspects};
    }
  }

  std::vector<JobRank> Named(const JobProcesses& job, std::size_t view, const Hang& hang) const {
    std::vector<JobRank> named;
    if (hang.verdict == HangVerdict::kCircularWait) {
      for (const CircleStep& step : hang.circle) named.push_back(Find(job, step));
      return named;
    }
    for (const int32_t number : hang.suspects) {
      named.push_back(Find(hang.absent_in.value_or(view), number));
      named.back().comm_id = views_[view].comm_id;
    }
    return named;
  }

  // Candidates in a communicator in which nobody is named.
  std::vector<JobRank> Perhaps(const CommunicatorView& view) const {
    std::vector<JobRank> perhaps;
    if (view.is_mixed) return perhaps;
    for (const RankView& rank : view.ranks) {
      if (rank.state != RankView::State::kLive || !rank.activity.is_idle()) continue;
      if (waits_.count(rank.process) != 0) continue;
      perhaps.push_back({view.comm_id, rank.rank(), rank.process, rank.communicator});
    }
    return perhaps;
  }

  // Adds a root for each finding of the job.
  void AddRoots(std::size_t job) {
    std::map<int, std::size_t> root_of;
    std::vector<JobRoot> roots;
    for (const CommunicatorView* view : jobs_[job].views) {
      const auto index = static_cast<std::size_t>(view - views_.data());
      if (!diagnosis_[index].hang || diagnosis_[index].hang->finding < 0) continue;
      const Hang& hang = *diagnosis_[index].hang;
      // It may be the hang of each of these jobs.
      if (view->is_mixed && !mixed_.insert(view).second) {
        has_root_[job] = has_root_[job] || !hang.is_usual;
        continue;
      }
      const auto [found, is_new] = root_of.try_emplace(hang.finding, roots.size());
      if (is_new) roots.emplace_back();
      JobRoot& root = roots[found->second];
      const bool is_first = is_new || std::tie(hang.is_usual, hang.since_realtime_ns) <
                                          std::tie(root.is_usual, root.since_realtime_ns);
      if (is_first) {
        root.verdict = hang.verdict;
        root.is_usual = hang.is_usual;
        root.since_realtime_ns = hang.since_realtime_ns;
        root.op = hang.op;
        root.missing_call = hang.missing_call;
        root.situation = hang.situation;
        root.text = hang.text;
      }
      root.communicators.push_back(view->comm_id);
      for (const JobRank& rank : Named(jobs_[job], index, hang)) {
        const bool is_known =
            rank.process != nullptr &&
            std::any_of(root.ranks.begin(), root.ranks.end(),
                        [&rank](const JobRank& each) { return each.process == rank.process; });
        if (!is_known) root.ranks.push_back(rank);
      }
      if (hang.suspects.empty()) {
        const std::vector<JobRank> perhaps = Perhaps(*view);
        root.perhaps.insert(root.perhaps.end(), perhaps.begin(), perhaps.end());
      }
    }
    for (JobRoot& root : roots) {
      // One of several is.
      if (root.situation == Situation::kExiting && root.ranks.size() != 1) {
        root.situation = Situation::kPlain;
      }
      if (!root.is_usual) has_root_[job] = true;
      verdict_.roots.push_back(std::move(root));
    }
  }

  const std::vector<CommunicatorView> views_;
  const DiagnosisResult& diagnosis_;  // one entry for each view
  const std::vector<JobProcesses> jobs_;
  std::vector<bool> has_root_;               // of each job: one that is not usual
  std::set<const CommunicatorView*> mixed_;  // that hang, and are among the roots
  std::map<const ProcessSnapshot*, JobWait> waits_;
  JobVerdict verdict_;
};

}  // namespace

std::string FirstStep(const JobRoot& root) {
  const JobRank rank = root.ranks.empty() ? JobRank() : root.ranks.front();
  return FirstStep(root.verdict, root.situation, rank.process, rank.communicator);
}

std::string FirstStep(const JobStraggler& straggler) {
  const ProcessSnapshot* process =
      straggler.ranks.empty() ? nullptr : straggler.ranks.front().process;
  return FirstStepOfLate(process, straggler.ranks.size() == 1);
}

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
