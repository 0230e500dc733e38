#include "exporter/diagnosis/facts/call_counts.h"

#include <algorithm>
#include <set>

#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

Calls CollectiveCalls(const CommunicatorSnapshot& communicator) {
  Calls calls;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (IsCollective(call.op) && !call.captured) calls[{call.op, call.size_class}] += call.calls;
  }
  return calls;
}

Calls WithoutSizes(const Calls& calls) {
  Calls sums;
  for (const auto& [kind, count] : calls) sums[{kind.first, -1}] += count;
  return sums;
}

uint64_t Total(const Calls& calls) {
  uint64_t total = 0;
  for (const auto& [kind, count] : calls) total += count;
  return total;
}

Calls Excess(const Calls& more, const Calls& less) {
  Calls excess;
  for (const auto& [kind, count] : more) {
    const auto found = less.find(kind);
    const uint64_t there = found == less.end() ? 0 : found->second;
    if (count > there) excess[kind] = count - there;
  }
  return excess;
}

Calls Common(const Calls& a, const Calls& b) {
  Calls common;
  for (const auto& [kind, count] : a) {
    const auto found = b.find(kind);
    if (found != b.end()) common[kind] = std::min(count, found->second);
  }
  return common;
}

std::string OnlyOperation(const Calls& calls) {
  std::set<std::string> names;
  for (const auto& [kind, count] : calls) names.insert(kind.first);
  return names.size() == 1 ? *names.begin() : "";
}

}  // namespace nccl_pulse
