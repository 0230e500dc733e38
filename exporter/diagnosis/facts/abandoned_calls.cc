#include "exporter/diagnosis/facts/abandoned_calls.h"

#include <algorithm>
#include <iterator>

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

}  // namespace nccl_pulse
