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
#include "exporter/diagnosis/facts/exchange.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace {

// A process is excused when this share of its lateness is explained by another one that it waits
// for.
constexpr double kExplained = 0.5;
constexpr double kLaterBy = 1.2;

// Why a process may be late that is not slow itself. If two reasons hold, the last of them counts.
enum class Excuse {
  kNone,
  kAnother,  // it waits for another one, and so comes late elsewhere
  kPeers,    // in Send or Recv
};

struct Late {
  JobRank rank;
  double seconds_per_second = 0;
  int64_t window_seconds = 0;
  std::string text, lateness;  // as in Straggler
  bool is_alone = false;       // the text is of it alone
  int communicators = 0;       // in which it is late
  Excuse excuse = Excuse::kNone;
};

// Which processes are connected by Send and Recv that are no exchange.
class Pipelines {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  explicit Pipelines(const std::vector<CommunicatorView>& views) {
    for (const CommunicatorView& view : views) {
      if (!view.has_point_to_point || view.is_exchange) continue;
      for (const RankView& rank : view.ranks) {
        const auto [own, is_new] = of_.try_emplace(rank.process, 0);
        if (is_new) own->second = sets_.Add();
        sets_.Join(own->second, of_.at(view.ranks.front().process));
      }
    }
  }

  // The same for all connected processes.
  std::size_t Of(const ProcessSnapshot* process) {
    const auto found = of_.find(process);
    return found == of_.end() ? kNone : sets_.SetOf(found->second);
  }

 private:
  DisjointSets sets_;
  std::unordered_map<const ProcessSnapshot*, std::size_t> of_;
};

bool IsOfPeers(const TimedCallSnapshot& call) {
  return IsPointToPoint(call.op) || IsGrouped(call.op);
}
bool IsOfAll(const TimedCallSnapshot& call) { return IsCollective(call.op); }

// The share of its time that each process spends in calls, including its waits. Ranks that wait for
// a slow one in a pipeline spend more there than before, and the slow one spends less.
class Waits {
 public:
  enum class Kind {
    kPeers,  // Send and Recv, except exchanges of all ranks: those are compared like collectives
    kCollectives,  // of other communicators than the one in which it is late
  };

  Waits(const std::vector<CommunicatorView>& views, Kind kind) : kind_(kind) {
    const bool are_peers = kind == Kind::kPeers;
    for (const CommunicatorView& view : views) {
      if (are_peers && (!view.has_point_to_point || view.is_exchange)) continue;
      for (const RankView& rank : view.ranks) {
        if (rank.state != RankView::State::kLive) continue;
        const std::optional<double> share = ShareInCalls(rank, are_peers ? IsOfPeers : IsOfAll);
        // If hardly any collectives are timed, they take hardly any time.
        shares_[rank.process].push_back({&view, are_peers ? share : share.value_or(0),
                                         rank.communicator->last_completion_realtime_ns});
      }
    }
  }

  bool Has(const ProcessSnapshot* process) const { return shares_.count(process) != 0; }

  // Returns how much longer a process waits than the median of the view's other ranks, in seconds
  // per second. Returns nothing if it, or half of those, have too few timed calls.
  std::optional<double> ExcessOf(const ProcessSnapshot* process, const CommunicatorView& view,
                                 const std::map<const ProcessSnapshot*, double>& named) const {
    std::vector<double> others;
    std::size_t unknown = 0;
    const int64_t first_ns = FirstTimedNs(view);
    for (const RankView& rank : view.ranks) {
      if (named.count(rank.process) != 0) continue;
      const std::optional<double> share = Of(rank.process, view, first_ns);
      if (share) others.push_back(*share);
      unknown += share ? 0 : 1;
    }
    const std::optional<double> own = Of(process, view, first_ns);
    if (!own || others.empty() || others.size() < unknown) return std::nullopt;
    const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    return *own - *middle;
  }

 private:
  std::optional<double> Of(const ProcessSnapshot* process, const CommunicatorView& view,
                           int64_t first_ns) const {
    const bool are_peers = kind_ == Kind::kPeers;
    const auto found = shares_.find(process);
    if (found == shares_.end()) return are_peers ? std::nullopt : std::optional(0.0);
    double sum = 0;
    for (const Share& each : found->second) {
      if (!each.share) return std::nullopt;  // the sum is unknown, too
      if (are_peers || (each.view != &view && each.last_ns >= first_ns)) {
        sum += *each.share;
      }
    }
    return sum;
  }

  // Waits in communicators that were done by then say nothing of the calls of this one.
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
  const Kind kind_;
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

  std::vector<JobStraggler> Make() {
    if (lates_.empty()) return {};
    ExcuseByPeers();
    ExcuseByOthers();
    KeepLatestOfPipelines();
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
    std::map<const ProcessSnapshot*, double> processes;  // how late each is
    double seconds_per_second;                           // together
  };

  void Add(const CommunicatorView& view, const Straggler& straggler) {
    Named named{&view, {}, straggler.seconds_per_second};
    const bool is_host = !straggler.host.empty();
    for (std::size_t i = 0; i < straggler.ranks.size(); ++i) {
      const int32_t number = straggler.ranks[i];
      const RankView* rank = view.Find(number);
      if (rank == nullptr) continue;
      named.processes[rank->process] = straggler.parts[i];
      Late& late = lates_[rank->process];
      ++late.communicators;
      const bool is_worst = late.seconds_per_second < straggler.parts[i];
      if (is_worst) {
        late.seconds_per_second = straggler.parts[i];
        late.window_seconds = straggler.window_seconds;
      }
      // A text about the process alone is better than one about its host.
      if (late.rank.process != nullptr && (is_host || (!is_worst && late.is_alone))) continue;
      late.rank = {view.comm_id, number, rank->process, rank->communicator};
      late.text = straggler.text;
      late.lateness = straggler.lateness;
      late.is_alone = !is_host;
    }
    named_.push_back(std::move(named));
  }

  // A process that waits for a late one in Send or Recv comes late elsewhere. Each stage of a
  // pipeline waits somewhat, so the measure is the wait of the processes that it is compared with:
  // they have its position in other pipelines. Without that measure it is not known which process
  // began.
  //
  // A process upstream of a slow link leaves calls early and waits that much longer in its next
  // calls. Over all its calls it waits as long as the others, so it is not late.
  void ExcuseByPeers() {
    const Waits of_peers(views_, Waits::Kind::kPeers);
    const Waits of_collectives(views_, Waits::Kind::kCollectives);
    for (const Named& there : named_) {
      for (const auto& [process, seconds] : there.processes) {
        const auto found = lates_.find(process);
        if (found == lates_.end()) continue;
        Late& late = found->second;
        const double in_collectives =
            of_collectives.ExcessOf(process, *there.view, there.processes).value_or(0);
        if (in_collectives >= kExplained * seconds) late.excuse = Excuse::kPeers;
        if (!of_peers.Has(process)) continue;
        const std::optional<double> excess =
            of_peers.ExcessOf(process, *there.view, there.processes);
        if (!excess) {
          lates_.erase(found);
          continue;
        }
        if (*excess >= kExplained * seconds) late.excuse = Excuse::kPeers;
      }
    }
  }

  void ExcuseByOthers() {
    for (const Named& there : named_) {
      for (const RankView& rank : there.view->ranks) {
        const auto found = lates_.find(rank.process);
        if (found == lates_.end() || there.processes.count(rank.process) != 0) continue;
        Late& late = found->second;
        if (there.seconds_per_second >= kExplained * late.seconds_per_second) {
          late.excuse = std::max(late.excuse, Excuse::kAnother);
        }
      }
    }
    // It may wait for a peer that is not seen to be late. Then no process is named.
    for (auto late = lates_.begin(); late != lates_.end();) {
      late = late->second.excuse == Excuse::kPeers ? lates_.erase(late) : std::next(late);
    }
    // If all wait for each other, none is excused.
    const auto is_excused = [](const auto& late) { return late.second.excuse != Excuse::kNone; };
    const bool are_all = std::all_of(lates_.begin(), lates_.end(), is_excused);
    for (auto late = lates_.begin(); late != lates_.end();) {
      late = is_excused(*late) && !are_all ? lates_.erase(late) : std::next(late);
    }
  }

  // Stages of a pipeline block each other in Send and Recv, so the latest of the late stages is the
  // cause. It is also the cause for pipelines of ranks that wait for it elsewhere, unless these
  // ranks are as late, or on its host. They may be nearly as late in fewer communicators: a slow
  // rank is also late among its tensor-parallel peers, and the ranks of another stage wait for
  // these in Recv together. Whether another stage is late in itself cannot be known then.
  void KeepLatestOfPipelines() {
    Pipelines pipelines(views_);
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

  // Ranks on its host that are named together with it belong to it: they came last by turns.
  void ExcuseWithHost(const ProcessSnapshot* process, const std::string& but_of_host) {
    lates_.erase(process);
    for (const Named& there : named_) {
      if (there.processes.size() < 2 || there.processes.count(process) == 0) continue;
      for (const auto& [other, seconds] : there.processes) {
        if (other->hostname != but_of_host) lates_.erase(other);
      }
    }
  }

  void AddStraggler(const std::vector<const Late*>& lates, bool is_whole_host, std::string text) {
    JobStraggler& straggler = stragglers_.emplace_back();
    straggler.is_whole_host = is_whole_host;
    straggler.text = std::move(text);
    for (const Late* late : lates) {
      straggler.ranks.push_back(late->rank);
      if (straggler.seconds_per_second >= late->seconds_per_second) continue;
      straggler.seconds_per_second = late->seconds_per_second;
      straggler.window_seconds = late->window_seconds;
    }
    std::sort(straggler.ranks.begin(), straggler.ranks.end(),
              [](const auto& a, const auto& b) { return a.process->pid < b.process->pid; });
  }

  // Adds hosts on which two or more processes are late.
  void AddHosts() {
    std::map<std::string, std::set<const ProcessSnapshot*>> processes;
    for (const CommunicatorView& view : views_) {
      for (const RankView& rank : view.ranks) {
        if (rank.state != RankView::State::kLive) continue;
        processes[rank.process->hostname].insert(rank.process);
      }
    }
    for (const auto& [host, all] : processes) {
      std::vector<const Late*> lates;
      for (const ProcessSnapshot* process : all) {
        const auto found = lates_.find(process);
        if (found != lates_.end()) lates.push_back(&found->second);
      }
      if (host.empty() || lates.size() < 2 || lates.size() != all.size()) continue;
      AddStraggler(lates, true, "");
      JobStraggler& straggler = stragglers_.back();
      straggler.text = absl::StrFormat(
          "All %d ranks of %s arrive last at calls that they share with other hosts; the others "
          "wait up to %s.",
          lates.size(), host, ShareWords(straggler.seconds_per_second, straggler.window_seconds));
      for (const ProcessSnapshot* process : all) lates_.erase(process);
    }
  }

  void AddOthers() {
    for (const auto& [process, late] : lates_) {
      AddStraggler({&late}, false, late.text);
      stragglers_.back().lateness = late.lateness;
    }
  }

  const std::vector<CommunicatorView>& views_;
  std::vector<Named> named_;
  // The worst communicator of each process.
  std::unordered_map<const ProcessSnapshot*, Late> lates_;
  std::vector<JobStraggler> stragglers_;
};

}  // namespace

std::vector<JobStraggler> FindJobStragglers(const std::vector<CommunicatorView>& views,
                                            const DiagnosisResult& diagnosis) {
  return Examiner(views, diagnosis).Make();
}

}  // namespace nccl_pulse
