// A slow host: its ranks take turns in coming last, so none of them is last often enough to be
// named.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "exporter/diagnosis/exchange.h"
#include "exporter/diagnosis/rounds.h"
#include "exporter/diagnosis/straggler.h"

namespace nccl_pulse {
namespace {

// Of the most that one of eight or so may be beyond its part, by chance.
constexpr double kMostErrors = 3.2;

// Whether its ranks may all be late alike: none by far more often than the others.
bool AreAlike(double late_calls, double most_of_one, std::size_t ranks_ever_late,
              std::size_t ranks) {
  const double part = 1 / static_cast<double>(ranks);
  const double most = part + kMostErrors * std::sqrt(part * (1 - part) / late_calls);
  return 2 * ranks_ever_late >= ranks && ranks_ever_late >= 2 && most_of_one <= most * late_calls;
}

}  // namespace

std::optional<Straggler> StragglerState::FindHost(const CommunicatorView& view,
                                                  const std::vector<const RankView*>& ranks) const {
  if (!ranks.front()->is_of_many_hosts) return std::nullopt;
  struct OfHost {
    std::vector<int32_t> ranks;
    std::vector<std::size_t> indices;
    OfRank sum;                  // as if its ranks were one
    double most_late_calls = 0;  // of one of them
    std::size_t ever_late = 0;
  };
  std::map<std::string, OfHost> hosts;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankView* rank = ranks[i];
    const auto found = ranks_.find(rank->rank());
    if (found == ranks_.end()) continue;
    const OfRank& of = found->second;
    OfHost& host = hosts[rank->process->hostname];
    host.most_late_calls = std::max(host.most_late_calls, of.late_calls);
    if (of.late_calls > 0) ++host.ever_late;
    host.ranks.push_back(rank->rank());
    host.indices.push_back(i);
    host.sum.late_calls += of.late_calls;
    host.sum.late_rounds += of.late_rounds;
    host.sum.window_seconds += of.window_seconds;
    host.sum.late_seconds += of.late_seconds;
    host.sum.matches_at_late = std::max(host.sum.matches_at_late, of.matches_at_late);
    host.sum.last_late_end_ns = std::max(host.sum.last_late_end_ns, of.last_late_end_ns);
  }
  if (hosts.size() < 2) return std::nullopt;
  for (const auto& [name, host] : hosts) {
    const double share = host.sum.late_rounds / window_rounds_;
    const double seconds_per_second = host.sum.window_seconds / window_observed_;
    if (host.ranks.size() < 2 || seconds_per_second < kMinLoss || IsInTimeAgain(host.sum) ||
        !AreAlike(host.sum.late_calls, host.most_late_calls, host.ever_late, host.ranks.size()) ||
        !AreLate(share, static_cast<double>(hosts.size()), view, ranks, host.indices,
                 host.sum.late_seconds)) {
      continue;
    }
    Straggler straggler;
    straggler.rank = host.ranks.front();
    straggler.host = name;
    straggler.ranks = host.ranks;
    straggler.seconds_per_second = seconds_per_second;
    straggler.mean_seconds = host.sum.late_seconds / host.sum.late_calls;
    straggler.late_share = share;
    straggler.matched_calls = static_cast<uint64_t>(window_matched_);
    straggler.text = absl::StrFormat(
        "The %d ranks of %s come last into %.0f %% of the late calls, by turns; the others wait "
        "%.2g "
        "seconds of every second.",
        host.ranks.size(), name, share * 100, seconds_per_second);
    return straggler;
  }
  return std::nullopt;
}

}  // namespace nccl_pulse
