#include "exporter/diagnosis/straggler_ranks.h"

#include <map>
#include <numeric>
#include <string_view>

namespace nccl_pulse {

std::vector<const RankView*> LiveRanks(const CommunicatorView& view) {
  std::vector<const RankView*> live;
  for (const RankView& rank : view.ranks) {
    if (rank.state == RankView::State::kLive) live.push_back(&rank);
  }
  return live;
}

double SumOfSquares(const std::vector<double>& numbers) {
  return std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0);
}

HostsOfRanks::HostsOfRanks(const std::vector<const RankView*>& ranks) {
  std::map<std::string_view, std::size_t> indices;
  for (const RankView* rank : ranks) {
    const auto [at, is_new] = indices.try_emplace(rank->process->hostname, indices.size());
    host_.push_back(at->second);
    if (is_new) ranks_.push_back(0);
    ++ranks_[at->second];
  }
}

double HostsOfRanks::SumOfSquares(const std::vector<double>& of_ranks) const {
  std::vector<double> means(size());
  for (std::size_t i = 0; i < host_.size(); ++i) {
    means[host_[i]] += of_ranks[i] / ranks_[host_[i]];
  }
  return nccl_pulse::SumOfSquares(means);
}

}  // namespace nccl_pulse
