#include "exporter/diagnosis/waits/hang.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "exporter/diagnosis/waits/stall.h"
#include "exporter/diagnosis/words/rank_words.h"

namespace nccl_pulse {
namespace {

std::vector<int32_t> RankNumbers(const Ranks& ranks) {
  std::vector<int32_t> numbers;
  numbers.reserve(ranks.size());
  for (const RankView* rank : ranks) numbers.push_back(rank->rank());
  return numbers;
}

// Returns the number of the last call of this kind; 0: none.
uint64_t NumberOf(const std::pair<std::string, int>& kind,
                  const CommunicatorSnapshot& communicator) {
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (call.op == kind.first && call.size_class == kind.second) calls += call.calls;
  }
  return calls;
}

// Returns how often each of `ranks` has called the kinds in `owed`. Omits kinds that the ranks have
// not called, or not equally often.
Calls CallsBefore(const Calls& owed, const Ranks& ranks) {
  Calls before;
  for (const auto& [kind, count] : owed) {
    std::set<uint64_t> each;
    for (const RankView* rank : ranks) each.insert(NumberOf(kind, *rank->communicator));
    if (each.size() == 1 && *each.begin() != 0) before[kind] = *each.begin();
  }
  return before;
}

void FindPeers(const Ranks& suspects, Stall* stall) {
  if (!stall->view->has_point_to_point) return;
  for (const RankView* rank : stall->waiting) {
    const PeersSnapshot& peers = rank->communicator->peers;
    for (const RankView* suspect : suspects) {
      const int32_t number = suspect->rank();
      if (HasPeer(peers.sends_to, number)) stall->peers.push_back({rank, suspect, true});
      if (HasPeer(peers.receives_from, number)) stall->peers.push_back({rank, suspect, false});
    }
  }
  if (!stall->peers.empty() || stall->view->nranks != 2 || stall->waiting.size() != 1) return;
  const RankView& waits = *stall->waiting.front();
  const RankView& other = *suspects.front();
  for (const auto& [op, missing] : {std::pair("Send", "Recv"), std::pair("Recv", "Send")}) {
    if (!stall->peer_op.empty() || waits.CallsOf(op) <= other.CallsOf(missing)) continue;
    stall->peer_op = missing;
    stall->hang.op = op;
  }
}

// Finds the calls that the suspects have not made, by operation and size or by peer. If the cause
// is unknown, finds the calls that ranks lack which may wait in another communicator.
void FindOwed(Stall* stall) {
  const CommunicatorFacts& facts = stall->waits->facts;
  const HangVerdict verdict = stall->hang.verdict;
  const bool is_unknown = verdict == HangVerdict::kUnknown;
  const Ranks& suspects = is_unknown ? stall->also_blocked : stall->suspects;
  const bool is_told = is_unknown || verdict == HangVerdict::kRankNotCalled ||
                       verdict == HangVerdict::kBlockedElsewhere;
  if (!is_told || facts.calls_known != CallsKnown::kYes || suspects.empty()) return;
  FindPeers(suspects, stall);
  if (!stall->peers.empty() || !stall->peer_op.empty()) return;
  if (suspects == facts.owing) {
    stall->owed = facts.owed;
  } else if (!facts.calls.empty()) {
    stall->owed = CallsOwedBy(facts, suspects);
  }
  stall->before = CallsBefore(stall->owed, suspects);
  if (!stall->owed.empty()) stall->hang.op = OnlyOperation(stall->owed);
  stall->is_exchange = stall->owed.empty() && stall->view->has_point_to_point;
}

Hang ToHang(const Stall& stall) {
  Hang hang = stall.hang;
  hang.suspects =
      hang.verdict == HangVerdict::kRankNotSeen ? stall.unseen : RankNumbers(stall.suspects);
  hang.waiting = RankNumbers(stall.waiting);
  hang.text = StallWords(stall);
  for (const auto& [view, rank] : stall.circle) {
    hang.circle.push_back({view->comm_id, rank->rank()});
  }
  if (hang.verdict == HangVerdict::kRankNotCalled) {
    hang.missing_call = !stall.peer_op.empty()   ? stall.peer_op
                        : !stall.peers.empty()   ? MissingPeerCall(stall)
                        : stall.owed.size() == 1 ? NumberedCallWords(stall.owed, stall.before)
                                                 : "";
  }
  const RankView* named = stall.suspects.empty() ? nullptr : stall.suspects.front();
  hang.first_step = FirstStep(hang.verdict, hang.situation, named ? named->process : nullptr,
                              named ? named->communicator : nullptr);
  return hang;
}

// Returns the queue if all work in flight is behind other work of the ranks' own GPUs, or behind
// earlier launches whose ends are not visible, but not for long enough to be a hang.
std::optional<Queued> QueuedOf(const CommunicatorView& view, const ViewWaits& waits,
                               const WaitGraph& graph, int64_t now_ns) {
  if (view.is_mixed) return std::nullopt;
  Stall queued;
  queued.view = &view;
  queued.waits = &waits;
  queued.hang.since_realtime_ns = INT64_MAX;
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const Member& each = waits.members[at];
    if (!each.is_live() || each.doing == Doing::kIdle) continue;
    if (!waits.has_backlog) {
      if (each.doing != Doing::kNotBegun) return std::nullopt;
      if (graph.actors[waits.gpus[at]].state == ActorState::kMoving) return std::nullopt;
    }
    if (ElapsedNs(now_ns, each.since_ns) < view.hang_after_ns) continue;
    queued.waiting.push_back(each.rank);
    queued.hang.since_realtime_ns = std::min(queued.hang.since_realtime_ns, each.since_ns);
  }
  if (queued.waiting.empty()) return std::nullopt;
  queued.hang.op = OpOfWaits(waits, queued.waiting);
  return Queued{queued.hang.since_realtime_ns, queued.hang.op, RankNumbers(queued.waiting),
                QueuedWords(queued, true)};
}

}  // namespace

DiagnosisResult FindHangs(const std::vector<CommunicatorView>& views, int64_t now_realtime_ns) {
  const Waits waits = BuildWaits(views, now_realtime_ns);
  const std::vector<JobFindings> jobs = FindWaits(views, waits);
  std::vector<std::optional<Stall>> stalls = StallsOf(views, waits, jobs, now_realtime_ns);
  DiagnosisResult result(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    result[i].comm_id = views[i].comm_id;
    result[i].number = views[i].number;
    if (stalls[i]) {
      FindOwed(&*stalls[i]);
      result[i].hang = ToHang(*stalls[i]);
    } else {
      result[i].queued = QueuedOf(views[i], waits.views[i], waits.graph, now_realtime_ns);
    }
    if (waits.views[i].is_beyond_limit) {
      result[i].note =
          "A GPU of a rank here has work in flight in too many communicators. The newest is not "
          "followed.";
    }
  }
  return result;
}

}  // namespace nccl_pulse
