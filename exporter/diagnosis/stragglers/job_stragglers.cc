#include "exporter/diagnosis/stragglers/job_stragglers.h"

#include <algorithm>
#include <cmath>
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
// With this share, another process that is later in itself explains all of its lateness.
constexpr double kPartlyExplained = 0.1;
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
  std::string text, lateness;  // as in Straggler
  bool is_alone = false;       // the text is of it alone
  int communicators = 0;       // in which it is late
  double own = HUGE_VAL;       // its lateness without its own wait for peers, where it has some
  Excuse excuse = Excuse::kNone;
  bool is_partly_excused = false;
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

class Examiner {
 public:
  Examiner(const std::vector<CommunicatorView>& views, const DiagnosisResult& diagnosis)
      : views_(views) {
    for (std::size_t i = 0; i < views.size() && i < diagnosis.size(); ++i) {
      if (diagnosis[i].straggler) Add(views[i], *diagnosis[i].straggler);
      if (diagnosis[i].perhaps_late) perhaps_.emplace_back(&views[i], *diagnosis[i].perhaps_late);
    }
  }

  std::vector<JobStraggler> Make() {
    if (lates_.empty()) return {};
    ExcuseByPeers();
    AddPerhaps();
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
    std::set<const ProcessSnapshot*> processes;
    double seconds_per_second;
  };

  void Add(const CommunicatorView& view, const Straggler& straggler) {
    Named named{&view, {}, straggler.seconds_per_second};
    const bool is_host = !straggler.host.empty();
    const std::vector<int32_t> ranks =
        is_host ? straggler.ranks : std::vector<int32_t>{straggler.rank};
    for (const int32_t number : ranks) {
      const RankView* rank = view.Find(number);
      if (rank == nullptr) continue;
      named.processes.insert(rank->process);
      Late& late = lates_[rank->process];
      ++late.communicators;
      const bool is_worst = late.seconds_per_second < straggler.seconds_per_second;
      late.seconds_per_second = std::max(late.seconds_per_second, straggler.seconds_per_second);
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
  // they have its place in other pipelines. Without that measure it is not known which process
  // began.
  void ExcuseByPeers() {
    const PointToPointWaits waits(views_);
    for (const Named& there : named_) {
      const std::optional<double> usual = waits.Median(*there.view, there.processes);
      for (const ProcessSnapshot* process : there.processes) {
        const auto found = lates_.find(process);
        if (found == lates_.end() || !waits.HasPeers(process)) continue;
        const std::optional<double> own = waits.Of(process);
        if (!own || !usual) {
          lates_.erase(found);
          continue;
        }
        const double excess = *own - *usual;
        Late& late = found->second;
        if (excess >= kExplained * there.seconds_per_second) late.excuse = Excuse::kPeers;
        late.is_partly_excused |= excess >= kPartlyExplained * there.seconds_per_second;
        late.own = std::min(late.own, there.seconds_per_second - excess);
      }
    }
  }

  // A named process is also late in communicators where too few calls are known to name it.
  void AddPerhaps() {
    for (const auto& [view, late] : perhaps_) {
      const RankView* rank = view->Find(late.rank);
      if (rank == nullptr || lates_.count(rank->process) == 0) continue;
      named_.push_back({view, {rank->process}, late.seconds_per_second});
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
    double most = 0;
    for (const auto& [process, late] : lates_) {
      if (late.excuse == Excuse::kNone && late.own != HUGE_VAL) {
        most = std::max(most, late.own);
      }
    }
    for (auto& [process, late] : lates_) {
      if (late.is_partly_excused && kLaterBy * late.own <= most) {
        late.excuse = std::max(late.excuse, Excuse::kAnother);
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
      for (const ProcessSnapshot* other : there.processes) {
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
      straggler.seconds_per_second =
          std::max(straggler.seconds_per_second, late->seconds_per_second);
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
      double most = 0;
      for (const Late* late : lates) most = std::max(most, late->seconds_per_second);
      AddStraggler(lates, true,
                   absl::StrFormat("All %d ranks of %s arrive last at calls that they share with "
                                   "other hosts; the others wait up to %s of the time.",
                                   lates.size(), host, ShareWords(most)));
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
  std::vector<std::pair<const CommunicatorView*, LateRank>> perhaps_;
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
