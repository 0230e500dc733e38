#include "exporter/diagnosis/reached_calls.h"

#include <algorithm>
#include <cstddef>

#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

// Numbers have 32 bits and wrap around.
bool IsBefore(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

bool IsSameGroup(const CallOrderSnapshot& order, std::size_t i) {
  return (static_cast<uint8_t>(order.calls[i]) & CallOrderSnapshot::kSameGroup) != 0;
}

// Of the group that call `number` is in there; `number` where it is not known.
uint32_t LastOfGroup(const CallOrderSnapshot& order, uint32_t number) {
  std::size_t i = number - order.first;
  if (i >= order.calls.size()) return number;
  while (i + 1 < order.calls.size() && IsSameGroup(order, i + 1)) ++i;
  return order.first + static_cast<uint32_t>(i);
}

}  // namespace

std::optional<uint32_t> LastReached(const Ranks& ranks) {
  std::optional<uint32_t> reached;
  for (const RankView* rank : ranks) {
    const uint32_t in_flight = rank->communicator->call_order.in_flight;
    if (in_flight == 0 || rank->activity.oldest_launch == OldestLaunch::kUnknown) continue;
    if (!reached || IsBefore(in_flight, *reached)) reached = in_flight;
  }
  if (!reached) return std::nullopt;
  // It is one launch on some ranks, and may be several on others.
  uint32_t last = *reached;
  for (const RankView* rank : ranks) {
    const uint32_t of_rank = LastOfGroup(rank->communicator->call_order, *reached);
    if (IsBefore(last, of_rank)) last = of_rank;
  }
  return last;
}

std::optional<Calls> CallsUntil(uint32_t last, const RankView& rank) {
  const CallOrderSnapshot& order = rank.communicator->call_order;
  Calls calls = CollectiveCalls(*rank.communicator);
  if (rank.activity.is_idle()) return calls;  // it has come to all of them
  if (order.calls.empty()) return std::nullopt;
  if (IsBefore(last + 1, order.first)) return std::nullopt;
  for (std::size_t i = last + 1 - order.first; i < order.calls.size(); ++i) {
    const std::size_t index = static_cast<uint8_t>(order.calls[i]) & CallOrderSnapshot::kKind;
    if (index >= order.kinds.size()) return std::nullopt;  // it is damaged
    const CallOrderSnapshot::Kind& kind = order.kinds[index];
    const auto found = calls.find({kind.op, SizeClassOf(kind.bytes)});
    if (found == calls.end()) return std::nullopt;
    if (--found->second == 0) calls.erase(found);
  }
  return calls;
}

bool IsOrderKnown(const Ranks& ranks) {
  const std::optional<uint32_t> last = LastReached(ranks);
  return last && std::all_of(ranks.begin(), ranks.end(), [last](const RankView* rank) {
           return CallsUntil(*last, *rank).has_value();
         });
}

}  // namespace nccl_pulse
