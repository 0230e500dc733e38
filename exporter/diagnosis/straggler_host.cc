// A slow host: its ranks take turns in coming last, so none of them is last often enough to be
// named.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "exporter/diagnosis/straggler.h"

namespace nccl_pulse {
namespace {

// A host is named if each of its ranks has at least this part of the late calls that it would have
// if all were equally late.
constexpr double kLeastPart = 0.2;

struct OfHost {
  std::vector<int32_t> ranks;
  double late_calls = 0, window_seconds = 0, late_seconds = 0;
  double least_late_calls = 0;
};

}  // namespace

std::optional<Straggler> StragglerState::FindHost(const std::vector<const RankView*>& ranks) const {
  if (!ranks.front()->is_of_many_hosts) return std::nullopt;
  std::map<std::string, OfHost> hosts;
  for (const RankView* rank : ranks) {
    const auto found = ranks_.find(rank->rank());
    if (found == ranks_.end()) continue;
    OfHost& host = hosts[rank->process->hostname];
    const double late = found->second.late_calls;
    host.least_late_calls = host.ranks.empty() ? late : std::min(host.least_late_calls, late);
    host.ranks.push_back(rank->rank());
    host.late_calls += late;
    host.window_seconds += found->second.window_seconds;
    host.late_seconds += found->second.late_seconds;
  }
  if (hosts.size() < 2) return std::nullopt;
  for (const auto& [name, host] : hosts) {
    const auto count = static_cast<double>(host.ranks.size());
    const double chance = count / static_cast<double>(ranks.size());
    const double needed =
        std::max(kMinLateShare, chance + 4 * std::sqrt(chance * (1 - chance) / window_matched_));
    const double share = host.late_calls / window_matched_;
    const double seconds_per_second = host.window_seconds / window_observed_;
    if (host.ranks.size() < 2 || share < std::min(needed, 0.999) || seconds_per_second < kMinLoss ||
        host.least_late_calls < kLeastPart * host.late_calls / count) {
      continue;
    }
    Straggler straggler;
    straggler.rank = host.ranks.front();
    straggler.host = name;
    straggler.ranks = host.ranks;
    straggler.seconds_per_second = seconds_per_second;
    straggler.mean_seconds = host.late_seconds / host.late_calls;
    straggler.late_share = share;
    straggler.matched_calls = static_cast<uint64_t>(window_matched_);
    straggler.text = absl::StrFormat(
        "The %d ranks of %s come last into %.0f %% of the calls, by turns; the others wait %.2g "
        "seconds of every second.",
        host.ranks.size(), name, share * 100, seconds_per_second);
    return straggler;
  }
  return std::nullopt;
}

}  // namespace nccl_pulse
