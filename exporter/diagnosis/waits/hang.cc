#include "exporter/diagnosis/waits/hang.h"

#include <algorithm>
#include <utility>

#include "exporter/diagnosis/waits/sentences.h"
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

Hang ToHang(const Stall& stall) {
  Hang hang;
  hang.verdict = stall.verdict;
  hang.finding = stall.finding;
  hang.since_realtime_ns = stall.since_ns;
  hang.op = stall.op;
  hang.situation = stall.situation;
  hang.suspects =
      stall.verdict == HangVerdict::kRankNotSeen ? stall.unseen : RankNumbers(stall.suspects);
  hang.waiting = RankNumbers(stall.waiting);
  hang.text = StallWords(stall);
  hang.longest_wait_before_ns = stall.longest_wait_before_ns;
  hang.is_usual = stall.is_usual;
  hang.replay = stall.replay;
  for (const auto& [view, rank] : stall.circle) {
    hang.circle.push_back({view->comm_id, rank->rank()});
  }
  const bool is_absent = stall.situation == Situation::kBeingMade && !stall.suspects.empty();
  if (is_absent) hang.absent_in = stall.absent_in;
  if (stall.verdict == HangVerdict::kRankNotCalled) {
    hang.missing_call = !stall.peer_op.empty()   ? stall.peer_op
                        : !stall.peers.empty()   ? MissingPeerCall(stall)
                        : stall.owed.size() == 1 ? NumberedCallWords(stall.owed, stall.before)
                                                 : "";
  }
  const RankView* named = stall.suspects.empty() ? nullptr : stall.suspects.front();
  hang.first_step = FirstStep(stall.verdict, stall.situation, named ? named->process : nullptr,
                              named ? named->communicator : nullptr);
  return hang;
}

// All that is in flight is behind work of the ranks' own GPUs, or behind earlier launches whose ends
// cannot be seen, for less than makes a hang.
std::optional<Queued> QueuedOf(const CommunicatorView& view, const ViewWaits& waits,
                               const WaitGraph& graph, int64_t now_ns) {
  if (view.is_mixed) return std::nullopt;
  Stall queued;
  queued.view = &view;
  queued.waits = &waits;
  queued.since_ns = INT64_MAX;
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const Member& each = waits.members[at];
    if (!each.is_live() || each.doing == Doing::kIdle) continue;
    if (!waits.has_backlog) {
      if (each.doing != Doing::kNotBegun) return std::nullopt;
      if (graph.actors[waits.gpus[at]].state == ActorState::kMoving) return std::nullopt;
    }
    if (ElapsedNs(now_ns, each.since_ns) < view.hang_after_ns) continue;
    queued.waiting.push_back(each.rank);
    queued.since_ns = std::min(queued.since_ns, each.since_ns);
  }
  if (queued.waiting.empty()) return std::nullopt;
  queued.op = LastCalled(queued.waiting);
  return Queued{queued.since_ns, queued.op, RankNumbers(queued.waiting), QueuedWords(queued, true)};
}

}  // namespace

std::vector<WaitsOfCommunicator> FindHangs(const std::vector<CommunicatorView>& views,
                                           int64_t now_realtime_ns) {
  const Waits waits = BuildWaits(views, now_realtime_ns);
  const std::vector<JobFindings> jobs = FindWaits(views, waits);
  const std::vector<std::optional<Stall>> stalls = StallsOf(views, waits, jobs, now_realtime_ns);
  std::vector<WaitsOfCommunicator> result(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (stalls[i]) {
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
