#include "exporter/diagnosis/job_stragglers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_format.h"

namespace nccl_pulse {
namespace {

// A process is excused when this share of its lateness is explained by another one that it waits
// for.
constexpr double kExplained = 0.5;

struct Late {
  JobRank rank;
  double seconds_per_second = 0;
  std::string text;
  bool is_excused = false;  // it waits for another one, and so is late elsewhere
};

const RankView* FindRank(const CommunicatorView& view, int32_t number) {
  const auto found =
      std::lower_bound(view.ranks.begin(), view.ranks.end(), number,
                       [](const RankView& rank, int32_t wanted) { return rank.rank() < wanted; });
  return found != view.ranks.end() && found->rank() == number ? &*found : nullptr;
}

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
    LeaveOutPeers();
    Excuse();
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
      const RankView* rank = FindRank(view, number);
      if (rank == nullptr) continue;
      named.processes.insert(rank->process);
      Late& late = lates_[rank->process];
      if (late.rank.process == nullptr || late.seconds_per_second < straggler.seconds_per_second) {
        late = {{view.comm_id, number, rank->process, rank->communicator},
                straggler.seconds_per_second,
                straggler.text};
      }
    }
    named_.push_back(std::move(named));
  }

  // A rank that waits for a late one in Send or Recv is late elsewhere. That cannot be seen,
  // because it is not known which of the two began.
  void LeaveOutPeers() {
    for (const CommunicatorView& view : views_) {
      if (!view.has_point_to_point) continue;
      for (const RankView& rank : view.ranks) lates_.erase(rank.process);
    }
  }

  void Excuse() {
    for (const Named& there : named_) {
      for (const RankView& rank : there.view->ranks) {
        const auto found = lates_.find(rank.process);
        if (found == lates_.end() || there.processes.count(rank.process) != 0) continue;
        found->second.is_excused |=
            there.seconds_per_second >= kExplained * found->second.seconds_per_second;
      }
    }
    // If all wait for each other, nobody is excused.
    const bool are_all = std::all_of(lates_.begin(), lates_.end(),
                                     [](const auto& late) { return late.second.is_excused; });
    for (auto late = lates_.begin(); late != lates_.end();) {
      late = late->second.is_excused && !are_all ? lates_.erase(late) : std::next(late);
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
                   absl::StrFormat("All %d ranks of %s come last into calls that they share with "
                                   "other hosts; the others wait up to %.2g seconds of every "
                                   "second.",
                                   lates.size(), host, most));
      for (const ProcessSnapshot* process : all) lates_.erase(process);
    }
  }

  void AddOthers() {
    for (const auto& [process, late] : lates_) AddStraggler({&late}, false, late.text);
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
