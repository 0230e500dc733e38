#include "exporter/diagnosis/waits/owed.h"

#include <algorithm>
#include <set>
#include <utility>

namespace nccl_pulse {
namespace {

// Of the last call of this kind. 0: there is none, or some were captured, which tables count and the
// comparison of ranks does not.
uint64_t NumberOf(const std::pair<std::string, int>& kind,
                  const CommunicatorSnapshot& communicator) {
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (call.op != kind.first || call.size_class != kind.second) continue;
    if (call.captured && call.calls != 0) return 0;
    calls += call.calls;
  }
  return calls;
}

// Says how often each of `ranks` has called the kinds of `owed`, as tables count it. Kinds that they have
// not called, or not equally often, or captured, are left out.
Calls CallsBefore(const Calls& owed, const Ranks& ranks) {
  Calls before;
  for (const auto& [kind, count] : owed) {
    std::set<uint64_t> each;
    for (const RankView* rank : ranks) each.insert(NumberOf(kind, *rank->communicator));
    if (each.size() == 1 && *each.begin() != 0) before[kind] = *each.begin();
  }
  return before;
}

void FindPeers(Stall* stall) {
  if (!stall->view->has_point_to_point) return;
  for (const RankView* rank : stall->waiting) {
    const PeersSnapshot& peers = rank->communicator->peers;
    for (const RankView* suspect : stall->suspects) {
      const int32_t number = suspect->rank();
      if (HasPeer(peers.sends_to, number)) stall->peers.push_back({rank, suspect, true});
      if (HasPeer(peers.receives_from, number)) stall->peers.push_back({rank, suspect, false});
    }
  }
  if (!stall->peers.empty() || stall->view->nranks != 2 || stall->waiting.size() != 1) return;
  const RankView& waits = *stall->waiting.front();
  const RankView& other = *stall->suspects.front();
  if (waits.CallsOf("Send") > other.CallsOf("Recv")) {
    stall->peer_op = "Recv";
    stall->op = "Send";
  } else if (waits.CallsOf("Recv") > other.CallsOf("Send")) {
    stall->peer_op = "Send";
    stall->op = "Recv";
  }
}

}  // namespace

void FindOwed(Stall* stall) {
  const CommunicatorFacts& facts = stall->waits->facts;
  if (facts.calls_known != CallsKnown::kYes || stall->suspects.empty()) return;
  FindPeers(stall);
  if (!stall->peers.empty() || !stall->peer_op.empty()) return;
  if (stall->suspects == facts.owing) {
    stall->owed = facts.owed;
  } else if (!facts.calls.empty()) {
    stall->owed = CallsOwedBy(facts, stall->suspects);
  }
  stall->before = CallsBefore(stall->owed, stall->suspects);
  if (!stall->owed.empty()) stall->op = OnlyOperation(stall->owed);
  stall->is_exchange = stall->owed.empty() && stall->view->has_point_to_point;
}

}  // namespace nccl_pulse
