#include "exporter/diagnosis/launch_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace nccl_pulse {
namespace {

// Launch n of one rank is launch n of another if both have put the same number of calls into
// launches.
uint64_t CallsWithoutLaunch(const CommunicatorFacts& facts, const RankView& rank) {
  return Total(facts.CallsOf(rank)) - rank.communicator->launches;
}

// Numbers of collectives have 32 bits and wrap around.
bool IsBefore(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

// The operation of the oldest collective that has not completed; "": there is none, or it is not
// known.
std::string OpInFlight(const CallOrderSnapshot& order) {
  const uint32_t at = order.in_flight - order.first;
  if (order.in_flight == 0 || at >= order.calls.size()) return "";
  const std::size_t kind = static_cast<uint8_t>(order.calls[at]) & CallOrderSnapshot::kKind;
  return kind < order.kinds.size() ? order.kinds[kind].op : "";
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

Ranks RanksNotCompleted(const CommunicatorFacts& facts) {
  std::optional<uint32_t> most;  // the last collective that a rank has completed
  for (const RankView* rank : facts.live) {
    const CallOrderSnapshot& order = rank->communicator->call_order;
    if (order.calls.empty()) continue;
    const auto calls = static_cast<uint32_t>(order.calls.size());
    const uint32_t completed = (order.in_flight != 0 ? order.in_flight : order.first + calls) - 1;
    if (!most || IsBefore(*most, completed)) most = completed;
  }
  Ranks standing;
  for (const RankView* rank : facts.stuck) {
    const CallOrderSnapshot& order = rank->communicator->call_order;
    if (rank->process->is_of_dump && most && WaitsForAll(OpInFlight(order)) &&
        !IsBefore(*most, order.in_flight)) {
      standing.push_back(rank);
    }
  }
  return standing;
}

}  // namespace nccl_pulse
