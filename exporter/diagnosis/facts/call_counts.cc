#include "exporter/diagnosis/facts/call_counts.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace nccl_pulse {
namespace {

uint64_t CallsOf(const CommunicatorSnapshot& communicator, const std::string& op) {
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (call.op == op) calls += call.calls;
  }
  return calls;
}

}  // namespace

Calls CollectiveCalls(const CommunicatorSnapshot& communicator) {
  Calls calls;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (IsCollective(call.op) && !call.captured) calls[{call.op, call.size_class}] += call.calls;
  }
  return calls;
}

uint64_t TotalCollectives(const CommunicatorSnapshot& communicator) {
  uint64_t total = 0;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (IsCollective(call.op) && !call.captured) total += call.calls;
  }
  return total;
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

std::vector<AbandonedCallsSnapshot> AbandonedCallsOf(const CommunicatorSnapshot& communicator) {
  std::vector<AbandonedCallsSnapshot> abandoned = communicator.abandoned_calls;
  const auto is_reported = [&communicator](const std::string& op) {
    return std::any_of(communicator.algorithms.begin(), communicator.algorithms.end(),
                       [&op](const auto& each) { return each.op == op && each.operations != 0; });
  };
  for (const UntimedSnapshot& untimed : communicator.untimed) {
    if (untimed.reason != UntimedReason::kUnreported || untimed.operations == 0) continue;
    const bool is_any_other = untimed.operations < CallsOf(communicator, untimed.op);
    if (is_any_other && !is_reported(untimed.op)) continue;
    if (abandoned.size() == kMostAbandoned) break;
    abandoned.push_back({untimed.op, untimed.operations});
  }
  return abandoned;
}

AbandonedCalls::AbandonedCalls(const std::vector<RankView>& ranks) {
  const auto callers = [&ranks](const std::string& op) {
    return static_cast<std::size_t>(std::count_if(
        ranks.begin(), ranks.end(),
        [&op](const RankView& rank) { return CallsOf(*rank.communicator, op) != 0; }));
  };
  decltype(by_op_) alone;
  for (const RankView& rank : ranks) {
    for (const auto& [op, calls] : AbandonedCallsOf(*rank.communicator)) {
      const bool is_some = calls < CallsOf(*rank.communicator, op);
      // All calls of a collective that no other rank has called, with no launch in flight.
      const bool is_alone =
          ranks.size() > 1 && WaitsForAll(op) && rank.activity.is_idle() && callers(op) == 1;
      if (is_some) by_op_[op][&rank] += calls;
      if (!is_some && is_alone) alone[op][&rank] = calls;
    }
  }
  for (auto each = by_op_.begin(); each != by_op_.end();) {
    const bool is_reported = callers(each->first) > each->second.size();
    each = is_reported ? std::next(each) : by_op_.erase(each);
  }
  by_op_.merge(alone);
}

uint64_t AbandonedCalls::Of(const RankView& rank, const std::string& op) const {
  const auto of = by_op_.find(op);
  if (of == by_op_.end()) return 0;
  const auto found = of->second.find(&rank);
  return found == of->second.end() ? 0 : found->second;
}

uint64_t AbandonedCalls::Of(const RankView& rank) const {
  uint64_t calls = 0;
  for (const auto& [op, of] : by_op_) calls += Of(rank, op);
  return calls;
}

Calls AbandonedCalls::CountWithout(const RankView& rank) const {
  Calls calls = CollectiveCalls(*rank.communicator);
  for (const auto& [op, of] : by_op_) {
    uint64_t made = 0;
    for (auto call = calls.lower_bound({op, 0}); call != calls.end() && call->first.first == op;) {
      made += call->second;
      call = calls.erase(call);
    }
    made -= std::min(made, Of(rank, op));
    if (made != 0) calls[{op, -1}] = made;
  }
  return calls;
}

uint64_t AbandonedCalls::TotalWithout(const RankView& rank) const {
  return by_op_.empty() ? TotalCollectives(*rank.communicator) : Total(CountWithout(rank));
}

}  // namespace nccl_pulse
