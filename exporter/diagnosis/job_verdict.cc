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

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/stragglers/job_stragglers.h"
#include "exporter/diagnosis/stragglers/slowed.h"

namespace nccl_pulse {
namespace {

// Endpoints answer at different moments, so two watchers may see waits that began this close to
// each other in another order.
constexpr int64_t kTogetherNs = 2000000000;

class JobJudge {
 public:
  JobJudge(const SnapshotSet& snapshots, const std::vector<CommunicatorView>& views,
           const DiagnosisResult& diagnosis)
      : views_(views), diagnosis_(diagnosis), jobs_(JobsOf(views_)), has_root_(jobs_.size()) {
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
    SortRoots();
    // A GPU's work in flight does not count as a waiting host.
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
  // Adds stragglers. A job's past (slowed.h) is used only if comparing calls names no rank, and if
  // nothing hangs.
  void AddStragglers() {
    std::vector<bool> is_known = has_root_;  // of each job
    for (JobStraggler& straggler : JobStragglersOf(views_, diagnosis_)) {
      std::size_t job = 0;
      while (!jobs_[job].Has(straggler.ranks.front().process)) ++job;
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

  // Returns the rank of a step's process in one of the job's communicators.
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
      named.push_back(Find(hang.suspects_seen_in.value_or(view), number));
      named.back().comm_id = views_[view].comm_id;
    }
    return named;
  }

  // Returns the candidates in a communicator in which no rank is named.
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

  // Sorts the oldest root first. Roots of about the same age are sorted by their communicators'
  // IDs. A root that waits in another communicator comes after its cause, however old it is.
  void SortRoots() {
    const auto key = [](const JobRoot& root) {
      return std::tuple(root.is_usual, root.verdict == HangVerdict::kBlockedElsewhere,
                        root.since_realtime_ns, root.communicators.front());
    };
    std::vector<JobRoot>& roots = verdict_.roots;
    std::stable_sort(roots.begin(), roots.end(),
                     [&key](const JobRoot& a, const JobRoot& b) { return key(a) < key(b); });
    for (auto first = roots.begin(); first != roots.end();) {
      const auto behind = std::find_if(first, roots.end(), [&](const JobRoot& root) {
        return std::get<0>(key(root)) != std::get<0>(key(*first)) ||
               std::get<1>(key(root)) != std::get<1>(key(*first)) ||
               ElapsedNs(root.since_realtime_ns, first->since_realtime_ns) >= kTogetherNs;
      });
      std::stable_sort(first, behind, [](const JobRoot& a, const JobRoot& b) {
        return a.communicators.front() < b.communicators.front();
      });
      first = behind;
    }
  }

  // Adds a root for each finding of the job. If the communicators of all findings are missing from
  // the result, the others become one root without ranks.
  void AddRoots(std::size_t job) {
    std::map<int, std::vector<std::size_t>> hangs_of;  // indices of communicators, by finding
    std::vector<std::size_t> others;
    for (const CommunicatorView* view : jobs_[job].views) {
      const auto index = static_cast<std::size_t>(view - views_.data());
      if (!diagnosis_[index].hang) continue;
      const Hang& hang = *diagnosis_[index].hang;
      // The hang may belong to any of these jobs.
      if (view->is_mixed && !mixed_.insert(view).second) {
        has_root_[job] = has_root_[job] || !hang.is_usual;
        continue;
      }
      (hang.finding < 0 ? others : hangs_of[hang.finding]).push_back(index);
    }
    if (hangs_of.empty() && !others.empty()) hangs_of[-1] = std::move(others);
    for (auto& [finding, hangs] : hangs_of) {
      JobRoot& root = verdict_.roots.emplace_back(RootOf(jobs_[job], std::move(hangs)));
      if (finding < 0) root.ranks.clear();  // they wait elsewhere
      if (!root.is_usual) has_root_[job] = true;
    }
  }

  // Puts the hang first whose words are used: of the communicator that has waited longest, or else
  // of the lowest ID.
  void PutFirst(std::vector<std::size_t>* hangs) const {
    const auto key = [this](std::size_t at) {
      const Hang& hang = *diagnosis_[at].hang;
      return std::pair(hang.is_usual, hang.since_realtime_ns);
    };
    const auto oldest = key(*std::min_element(hangs->begin(), hangs->end(),
                                              [&](auto a, auto b) { return key(a) < key(b); }));
    const auto first = std::find_if(hangs->begin(), hangs->end(), [&](std::size_t at) {
      const auto [is_usual, since_ns] = key(at);
      return is_usual == oldest.first && ElapsedNs(since_ns, oldest.second) < kTogetherNs;
    });
    std::rotate(hangs->begin(), first, first + 1);
  }

  JobRoot RootOf(const JobProcesses& job, std::vector<std::size_t> hangs) const {
    PutFirst(&hangs);
    JobRoot root{*diagnosis_[hangs.front()].hang, {}, {}, {}};
    for (const std::size_t at : hangs) {
      const Hang& hang = *diagnosis_[at].hang;
      root.since_realtime_ns = std::min(root.since_realtime_ns, hang.since_realtime_ns);
      root.communicators.push_back(views_[at].comm_id);
      for (const JobRank& rank : Named(job, at, hang)) {
        const bool is_known =
            rank.process != nullptr &&
            std::any_of(root.ranks.begin(), root.ranks.end(),
                        [&rank](const JobRank& each) { return each.process == rank.process; });
        if (!is_known) root.ranks.push_back(rank);
      }
      if (hang.suspects.empty()) {
        const std::vector<JobRank> perhaps = Perhaps(views_[at]);
        root.perhaps.insert(root.perhaps.end(), perhaps.begin(), perhaps.end());
      }
    }
    return root;
  }

  const std::vector<CommunicatorView>& views_;
  const DiagnosisResult& diagnosis_;  // one entry for each view
  const std::vector<JobProcesses> jobs_;
  std::vector<bool> has_root_;               // by job: true if it has an unusual root
  std::set<const CommunicatorView*> mixed_;  // mixed communicators whose hang is among the roots
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
  return FirstStepOfLate(process);
}

JobVerdict JudgeJob(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                    int64_t now_realtime_ns) {
  return JudgeJob(snapshots, GroupByCommunicator(snapshots, now_realtime_ns), diagnosis);
}

JobVerdict JudgeJob(const SnapshotSet& snapshots, const std::vector<CommunicatorView>& views,
                    const DiagnosisResult& diagnosis) {
  return JobJudge(snapshots, views, diagnosis).Make();
}

bool IsAnotherLookWorthwhile(const DiagnosisResult& diagnosis, const JobVerdict& verdict) {
  if (!verdict.roots.empty()) return false;
  // Ranks on communicators of named processes: the named rank may be late there because it waits
  // for an unnamed one.
  std::set<std::pair<uint64_t, int32_t>> of_named;
  for (const JobStraggler& straggler : verdict.stragglers) {
    for (const JobRank& named : straggler.ranks) {
      for (const CommunicatorSnapshot& communicator : named.process->communicators) {
        of_named.emplace(communicator.comm_id, communicator.rank);
      }
    }
  }
  return std::any_of(diagnosis.begin(), diagnosis.end(), [&](const CommunicatorDiagnosis& each) {
    if (!each.perhaps_late || verdict.stragglers.empty()) return each.perhaps_late.has_value();
    const auto first = of_named.lower_bound({each.comm_id, INT32_MIN});
    return first != of_named.end() && first->first == each.comm_id &&
           of_named.count({each.comm_id, each.perhaps_late->rank}) == 0;
  });
}

}  // namespace nccl_pulse
