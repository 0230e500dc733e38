#include "exporter/diagnosis/stragglers/job_stragglers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_format.h"
#include "exporter/base/disjoint_sets.h"
#include "exporter/diagnosis/stragglers/rounds.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace {

// A process is excused if its wait for another process explains at least this share of its
// lateness.
constexpr double kExplained = 0.5;
constexpr double kLaterBy = 1.2;

struct Late {
  JobRank rank;
  const Straggler* said = nullptr;  // of the process alone if there is one, else of its host
  double seconds_per_second = 0;    // in its worst communicator
  int64_t window_seconds = 0;
  int communicators = 0;  // in which it is late
};

// Groups processes that are connected by Sends and Recvs other than exchanges.
class Pipelines {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  explicit Pipelines(const std::vector<CommunicatorView>& views) {
    for (const CommunicatorView& view : views) {
      if (!IsOfPipeline(view)) continue;
      for (const RankView& rank : view.ranks) {
        const auto [own, is_new] = of_.try_emplace(rank.process, 0);
        if (is_new) own->second = sets_.Add();
        sets_.Join(own->second, of_.at(view.ranks.front().process));
      }
    }
  }

  // Returns the number of the process' group.
  std::size_t Of(const ProcessSnapshot* process) {
    const auto found = of_.find(process);
    return found == of_.end() ? kNone : sets_.SetOf(found->second);
  }

 private:
  DisjointSets sets_;
  std::unordered_map<const ProcessSnapshot*, std::size_t> of_;
};

bool IsAny(const TimedCallSnapshot& /*call*/) { return true; }
bool IsOfAll(const TimedCallSnapshot& call) { return IsCollective(call.op); }

// The share of its time that each process spends in calls, including its waits. Ranks that wait for
// a slow one spend more there than before, and the slow one spends less.
class Waits {
 public:
  explicit Waits(const std::vector<CommunicatorView>& views) {
    for (const CommunicatorView& view : views) {
      const bool is_pipeline = IsOfPipeline(view);
      for (const RankView& rank : view.ranks) {
        if (rank.state != RankView::State::kLive) continue;
        std::optional<double> share = ShareInCalls(rank, view.has_point_to_point ? IsAny : IsOfAll);
        // If hardly any collectives are timed, they take hardly any time.
        if (!share && !is_pipeline) share = 0;
        shares_[rank.process].push_back(
            {&view, share, rank.communicator->last_completion_realtime_ns});
      }
    }
  }

  // Returns how much longer a process waits in other communicators than the median of the view's
  // other ranks, in seconds per second. Returns nothing if it, or half of those, have too few timed
  // calls.
  std::optional<double> ExcessOf(const ProcessSnapshot* process, const CommunicatorView& view,
                                 const std::map<const ProcessSnapshot*, double>& named) const {
    std::vector<double> others;
    std::size_t unknown = 0;
    const int64_t first_ns = FirstTimedNs(view);
    for (const RankView& rank : view.ranks) {
      if (named.count(rank.process) != 0) continue;
      const std::optional<double> share = Elsewhere(rank.process, view, first_ns);
      if (share) others.push_back(*share);
      unknown += share ? 0 : 1;
    }
    const std::optional<double> own = Elsewhere(process, view, first_ns);
    if (!own || others.empty() || others.size() < unknown) return std::nullopt;
    const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    return *own - *middle;
  }

 private:
  std::optional<double> Elsewhere(const ProcessSnapshot* process, const CommunicatorView& view,
                                  int64_t first_ns) const {
    const auto found = shares_.find(process);
    if (found == shares_.end()) return 0;
    double sum = 0;
    for (const Share& each : found->second) {
      if (each.view == &view || each.last_ns < first_ns) continue;
      if (!each.share) return std::nullopt;  // so the sum is also unknown
      sum += *each.share;
    }
    return sum;
  }

  // Returns the time of the first timed call. Waits in communicators that ended before it do not
  // explain this one's calls.
  static int64_t FirstTimedNs(const CommunicatorView& view) {
    int64_t first_ns = INT64_MAX;
    for (const RankView& rank : view.ranks) {
      for (const TimedCallSnapshot& call : rank.communicator->timed_calls) {
        first_ns = std::min(first_ns, call.end_realtime_ns);
      }
    }
    return first_ns;
  }

  struct Share {
    const CommunicatorView* view;
    std::optional<double> share;
    int64_t last_ns;  // last completion
  };
  std::unordered_map<const ProcessSnapshot*, std::vector<Share>> shares_;
};

class Examiner {
 public:
  Examiner(const std::vector<CommunicatorView>& views, const DiagnosisResult& diagnosis)
      : views_(views) {
    for (std::size_t i = 0; i < views.size() && i < diagnosis.size(); ++i) {
      if (diagnosis[i].straggler) Add(views[i], *diagnosis[i].straggler);
    }
  }

  // Drops processes that are late only because they wait elsewhere.
  void Excuse() {
    if (lates_.empty()) return;
    EraseWaiting();
    ExcuseByOthers();
    KeepLatestOfPipelines();
  }

  bool IsLate(const ProcessSnapshot* process) const { return lates_.count(process) != 0; }

  std::vector<JobStraggler> Make() {
    if (lates_.empty()) return {};
    AddHosts();
    AddOthers();
    std::sort(stragglers_.begin(), stragglers_.end(), [](const auto& a, const auto& b) {
      return a.seconds_per_second > b.seconds_per_second;
    });
    return std::move(stragglers_);
  }

 private:
  struct Named {
    const CommunicatorView* view;
    std::map<const ProcessSnapshot*, double> processes;  // lateness of each
    double seconds_per_second;                           // together
  };

  void Add(const CommunicatorView& view, const Straggler& straggler) {
    Named named{&view, {}, straggler.seconds_per_second};
    const bool is_host = !straggler.host.empty();
    for (std::size_t i = 0; i < straggler.ranks.size(); ++i) {
      const int32_t number = straggler.ranks[i];
      const RankView* rank = view.Find(number);
      const bool is_excused =
          std::count(straggler.excused.begin(), straggler.excused.end(), number);
      if (rank == nullptr || is_excused) continue;
      named.processes[rank->process] = straggler.parts[i];
      Late& late = lates_[rank->process];
      ++late.communicators;
      const bool is_worst = late.seconds_per_second < straggler.parts[i];
      if (is_worst) {
        late.seconds_per_second = straggler.parts[i];
        late.window_seconds = straggler.window_seconds;
      }
      const bool is_better =
          late.said == nullptr || (!is_host && (is_worst || !late.said->host.empty()));
      if (!is_better) continue;
      late.rank = {view.comm_id, number, rank->process, rank->communicator};
      late.said = &straggler;
    }
    named_.push_back(std::move(named));
  }

  // Erases processes that are latest where they are late because they wait elsewhere. Each stage of
  // a pipeline waits somewhat, so a process is compared with the processes that have its position
  // in other pipelines. If their waits are not known, the process is also erased, because it may not
  // be the cause. If no endpoint shows the cause, no process is named.
  //
  // A process upstream of a slow link leaves its calls early, and waits longer in its next calls.
  // In total it waits as long as the others, so it is not late.
  void EraseWaiting() {
    const Waits waits(views_);
    for (const Named& there : named_) {
      for (const auto& [process, seconds] : there.processes) {
        const auto late = lates_.find(process);
        if (late == lates_.end() || seconds < late->second.seconds_per_second) continue;
        const std::optional<double> excess = waits.ExcessOf(process, *there.view, there.processes);
        if (!excess || *excess >= kExplained * seconds) lates_.erase(late);
      }
    }
  }

  // Excuses processes that share a communicator with a later one, unless this excuses all.
  void ExcuseByOthers() {
    std::set<const ProcessSnapshot*> excused;
    for (const Named& there : named_) {
      for (const RankView& rank : there.view->ranks) {
        const auto found = lates_.find(rank.process);
        if (found == lates_.end() || there.processes.count(rank.process) != 0) continue;
        if (there.seconds_per_second >= kExplained * found->second.seconds_per_second) {
          excused.insert(rank.process);
        }
      }
    }
    if (excused.size() == lates_.size()) return;
    for (const ProcessSnapshot* process : excused) lates_.erase(process);
  }

  // Stages of a pipeline block each other in Send and Recv, so the latest of the late stages is the
  // cause. It is also the cause for pipelines of ranks that wait for it elsewhere, unless these
  // ranks are as late, or on its host. They may be nearly as late in fewer communicators: a slow
  // rank is also late among its tensor-parallel peers, and the ranks of another stage wait for
  // these in Recv together. Whether another stage is late in itself cannot be known then. Too few
  // calls among such peers may be timed for it to be named there, so all of its host count.
  void KeepLatestOfPipelines() {
    Pipelines pipelines(views_);
    std::unordered_map<const ProcessSnapshot*, std::vector<const CommunicatorView*>> on_host_of;
    for (const CommunicatorView& view : views_) {
      const bool is_on_host =
          std::all_of(view.ranks.begin(), view.ranks.end(), [&view](const RankView& rank) {
            return rank.process->hostname == view.ranks.front().process->hostname;
          });
      if (!is_on_host || IsOfPipeline(view)) continue;
      for (const RankView& rank : view.ranks) {
        if (IsLate(rank.process)) on_host_of[rank.process].push_back(&view);
      }
    }
    std::vector<std::tuple<double, int, const ProcessSnapshot*>> order;
    for (const auto& [process, late] : lates_) {
      if (pipelines.Of(process) == Pipelines::kNone) continue;
      order.emplace_back(late.seconds_per_second, late.communicators, process);
    }
    std::sort(order.rbegin(), order.rend());
    for (const auto& [seconds, communicators, process] : order) {
      if (lates_.count(process) == 0) continue;  // it waits for a later one
      std::set<std::size_t> held_up;
      for (const Named& there : named_) {
        if (there.processes.count(process) == 0) continue;
        for (const RankView& rank : there.view->ranks) held_up.insert(pipelines.Of(rank.process));
      }
      for (const CommunicatorView* view : on_host_of[process]) {
        for (const RankView& rank : view->ranks) held_up.insert(pipelines.Of(rank.process));
      }
      std::vector<const ProcessSnapshot*> excused;
      for (const auto& [other, late] : lates_) {
        const std::size_t pipeline = pipelines.Of(other);
        const double of_other = late.seconds_per_second;
        const bool is_late_in_fewer = late.communicators < communicators && of_other <= seconds;
        const bool is_held_up = pipeline != Pipelines::kNone && held_up.count(pipeline) != 0 &&
                                other->hostname != process->hostname &&
                                (is_late_in_fewer || kLaterBy * of_other <= seconds);
        const bool is_in_same = pipeline == pipelines.Of(process) && of_other < seconds;
        if (is_held_up || is_in_same) excused.push_back(other);
      }
      for (const ProcessSnapshot* other : excused) ExcuseWithHost(other, process->hostname);
    }
  }

  // Excuses ranks on the same host that are named together with the process: they arrived last by
  // turns.
  void ExcuseWithHost(const ProcessSnapshot* process, const std::string& but_of_host) {
    lates_.erase(process);
    for (const Named& there : named_) {
      if (there.processes.size() < 2 || there.processes.count(process) == 0) continue;
      for (const auto& [other, seconds] : there.processes) {
        if (other->hostname != but_of_host) lates_.erase(other);
      }
    }
  }

  void AddStraggler(const std::vector<Late>& lates) {
    JobStraggler& straggler = stragglers_.emplace_back();
    for (const Late& late : lates) {
      straggler.ranks.push_back(late.rank);
      if (straggler.seconds_per_second >= late.seconds_per_second) continue;
      straggler.seconds_per_second = late.seconds_per_second;
      straggler.window_seconds = late.window_seconds;
    }
    std::sort(straggler.ranks.begin(), straggler.ranks.end(),
              [](const auto& a, const auto& b) { return a.process->pid < b.process->pid; });
  }

  // Adds hosts on which two or more processes are late, and none isn't.
  void AddHosts() {
    std::map<std::string, std::set<const ProcessSnapshot*>> processes;
    for (const CommunicatorView& view : views_) {
      for (const RankView& rank : view.ranks) {
        if (rank.state != RankView::State::kLive) continue;
        processes[rank.process->hostname].insert(rank.process);
      }
    }
    for (const auto& [host, all] : processes) {
      const bool are_all = std::all_of(
          all.begin(), all.end(), [this](const auto* each) { return lates_.count(each) != 0; });
      if (host.empty() || all.size() < 2 || !are_all) continue;
      std::vector<Late> lates;
      for (const ProcessSnapshot* process : all) lates.push_back(lates_.extract(process).mapped());
      AddStraggler(lates);
      JobStraggler& straggler = stragglers_.back();
      straggler.is_whole_host = true;
      straggler.text = absl::StrFormat(
          "All %d ranks of %s arrive last at calls that they share with other hosts; the others "
          "wait up to %s.",
          lates.size(), host, ShareWords(straggler.seconds_per_second, straggler.window_seconds));
    }
  }

  void AddOthers() {
    for (const auto& [process, late] : lates_) {
      AddStraggler({late});
      stragglers_.back().text = late.said->text;
      stragglers_.back().lateness = late.said->lateness;
    }
  }

  const std::vector<CommunicatorView>& views_;
  std::vector<Named> named_;
  // By process: the communicator in which it is latest.
  std::unordered_map<const ProcessSnapshot*, Late> lates_;
  std::vector<JobStraggler> stragglers_;
};

}  // namespace

void ExcuseStragglers(const std::vector<CommunicatorView>& views, DiagnosisResult* diagnosis) {
  Examiner examiner(views, *diagnosis);
  examiner.Excuse();
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!(*diagnosis)[i].straggler) continue;
    Straggler& straggler = *(*diagnosis)[i].straggler;
    for (const int32_t number : straggler.ranks) {
      const RankView* rank = views[i].Find(number);
      if (rank == nullptr || !examiner.IsLate(rank->process)) straggler.excused.push_back(number);
    }
  }
}

std::vector<JobStraggler> JobStragglersOf(const std::vector<CommunicatorView>& views,
                                          const DiagnosisResult& diagnosis) {
  return Examiner(views, diagnosis).Make();
}

}  // namespace nccl_pulse
