#include "exporter/diagnosis/launch_order.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace nccl_pulse {
namespace {

// Launch n of one rank is launch n of another if both have put the same number of calls into
// launches.
uint64_t CallsWithoutLaunch(const CommunicatorFacts& facts, const RankView& rank) {
  return Total(facts.CallsOf(rank)) - rank.communicator->launches;
}

}  // namespace

Ranks RanksInsideNccl(const CommunicatorFacts& facts, const Ranks& waiting) {
  Ranks inside;
  if (facts.view->has_point_to_point) return inside;
  uint64_t launches = 0;
  int64_t oldest_ns = INT64_MAX;
  for (const RankView* rank : facts.live) {
    launches = std::max(launches, rank->communicator->launches);
  }
  for (const RankView* rank : waiting) {
    oldest_ns = std::min(oldest_ns, SeenInFlightSince(*rank->communicator));
  }
  for (const RankView* rank : facts.live) {
    const CommunicatorSnapshot& communicator = *rank->communicator;
    if (rank->activity.reason == UnknownReason::kLaunchNotReported &&
        communicator.launches < launches && communicator.last_launch_realtime_ns < oldest_ns) {
      inside.push_back(rank);
    }
  }
  return inside;
}

Ranks RanksNotBegun(const CommunicatorFacts& facts) {
  Ranks late;
  if (facts.view->has_point_to_point) return late;
  // The largest number of launches that a rank has completed before the one that it has begun.
  std::unordered_map<uint64_t, uint64_t> begun;
  for (const RankView* rank : facts.live) {
    if (rank->activity.oldest_launch != OldestLaunch::kBegun) continue;
    uint64_t& most = begun[CallsWithoutLaunch(facts, *rank)];
    most = std::max(most, rank->communicator->launches_completed);
  }
  for (const RankView* rank : facts.live) {
    if (rank->activity.oldest_launch != OldestLaunch::kNotBegun) continue;
    const auto found = begun.find(CallsWithoutLaunch(facts, *rank));
    if (found != begun.end() && rank->communicator->launches_completed <= found->second) {
      late.push_back(rank);
    }
  }
  return late;
}

}  // namespace nccl_pulse
