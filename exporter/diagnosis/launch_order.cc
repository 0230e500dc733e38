#include "exporter/diagnosis/launch_order.h"

#include <algorithm>
#include <cstdint>

namespace nccl_pulse {
namespace {

// Launch number n of one is that of the other: they have put their calls into as many.
bool HaveSameLaunches(const CommunicatorFacts& facts, const RankView& a, const RankView& b) {
  return Total(facts.CallsOf(a)) - a.communicator->launches ==
         Total(facts.CallsOf(b)) - b.communicator->launches;
}

bool IsBegunBefore(const CommunicatorFacts& facts, const RankView& late, const RankView& other) {
  return other.activity.oldest_launch == OldestLaunch::kBegun &&
         HaveSameLaunches(facts, late, other) &&
         late.communicator->launches_completed <= other.communicator->launches_completed;
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
  for (const RankView* rank : facts.live) {
    if (rank->activity.oldest_launch != OldestLaunch::kNotBegun) continue;
    if (std::any_of(facts.live.begin(), facts.live.end(),
                    [&](const RankView* other) { return IsBegunBefore(facts, *rank, *other); })) {
      late.push_back(rank);
    }
  }
  return late;
}

}  // namespace nccl_pulse
