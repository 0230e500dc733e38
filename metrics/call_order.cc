#include "metrics/call_order.h"

#include <algorithm>
#include <cstddef>

namespace nccl_pulse {
namespace {

struct Collective {
  const LastCallSnapshot* call;
  std::size_t group;
};

uint32_t NumberOf(const Collective& collective) {
  return static_cast<uint32_t>(collective.call->collective_number);
}

bool IsLaunched(const LastCallSnapshot& call) {
  return call.captured || call.launch_realtime_ns != 0;
}

// Returns the collectives of complete groups.
std::vector<Collective> CollectivesOf(const std::vector<LastCallSnapshot>& calls) {
  std::vector<Collective> collectives;
  std::size_t group = 0;
  for (const LastCallSnapshot& call : calls) {
    if (!call.is_of_group) ++group;
    if (group != 0 && call.collective_number != 0) collectives.push_back({&call, group});
  }
  if (calls.empty() || IsLaunched(calls.back())) return collectives;
  while (!collectives.empty() && collectives.back().group == group) collectives.pop_back();
  return collectives;
}

// Returns the index of the call's kind, adding it if new; kMostKinds if there is no room.
std::size_t KindOf(const LastCallSnapshot& call, std::vector<CallOrderSnapshot::Kind>* kinds) {
  const bool is_unlaunched = !IsLaunched(call);
  const auto found = std::find_if(kinds->begin(), kinds->end(), [&](const auto& kind) {
    return kind.bytes == call.bytes && kind.op == call.op && kind.datatype == call.datatype &&
           kind.is_unlaunched == is_unlaunched && kind.root == call.root;
  });
  if (found != kinds->end()) return static_cast<std::size_t>(found - kinds->begin());
  if (kinds->size() == CallOrderSnapshot::kMostKinds) return kinds->size();
  kinds->push_back({call.op, call.datatype, call.bytes, is_unlaunched, call.root});
  return kinds->size() - 1;
}

}  // namespace

CallOrderSnapshot CallOrderOf(const std::vector<LastCallSnapshot>& calls,
                              std::optional<uint64_t> launches_completed) {
  CallOrderSnapshot order;
  const std::vector<Collective> all = CollectivesOf(calls);
  std::size_t begin = all.size();
  // Goes back until a number is missing or a kind has no room, then forward to a complete group.
  for (; begin > 0; --begin) {
    const Collective& each = all[begin - 1];
    if (begin < all.size() && NumberOf(each) + 1 != NumberOf(all[begin])) break;
    const std::size_t kind = KindOf(*each.call, &order.kinds);
    if (kind == CallOrderSnapshot::kMostKinds) break;
    order.calls.push_back(static_cast<char>(kind));
  }
  std::reverse(order.calls.begin(), order.calls.end());
  const std::size_t known = begin;
  while (begin > 0 && begin < all.size() && all[begin].group == all[begin - 1].group) ++begin;
  order.calls.erase(0, begin - known);
  if (order.calls.empty()) return {};
  order.first = NumberOf(all[begin]);
  for (std::size_t i = begin; i < all.size(); ++i) {
    const LastCallSnapshot& call = *all[i].call;
    char& bits = order.calls[i - begin];
    if (i > begin && all[i].group == all[i - 1].group) {
      bits = static_cast<char>(static_cast<uint8_t>(bits) | CallOrderSnapshot::kSameGroup);
    }
    const bool is_in_flight =
        launches_completed && call.launch != 0 && call.launch > *launches_completed;
    if (is_in_flight && order.in_flight == 0) order.in_flight = NumberOf(all[i]);
  }
  return order;
}

}  // namespace nccl_pulse
