#include <algorithm>

#include "exporter/diagnosis/facts/member.h"
#include "exporter/diagnosis/waits/graph_builder.h"

namespace nccl_pulse {
namespace {

// True for a rank that has made the call, and then failed, ended or stopped in it, so that the
// others wait for it.
bool IsHeldUpByEvent(const LastEvent& cause, const Member& each, uint64_t most_launches) {
  switch (cause.kind) {
    case LastEvent::Kind::kFailed:
      return true;
    case LastEvent::Kind::kGone:
      return each.is_in_flight();
    case LastEvent::Kind::kStopped:
      return each.doing == Doing::kNotBegun || each.rank->communicator->launches < most_launches;
  }
  return false;
}

// True if the rank is behind and has unreported calls, and can't wait for a call of another rank.
bool IsNamedByCounts(const CommunicatorFacts& facts, const RankView& rank) {
  return facts.are_all_live() && !facts.view->has_point_to_point && Contains(facts.behind, &rank) &&
         Contains(facts.unreported, &rank) && facts.IsFurthestBehind(rank);
}

// A call in which ranks wait.
struct CallWait {
  uint64_t number = 0;
  uint32_t id = 0;                // actor
  int64_t began_ns = 0;           // when the last rank in it began to wait
  int64_t oldest_ns = INT64_MAX;  // oldest launch of it
  bool is_any_begun = false;      // on a GPU
  uint64_t most_launches = 0;     // of a live rank
  // When the GPUs of ranks in it last completed work of any communicator. Until then they may have
  // been behind that work. 0: that work still moves, so it is on other streams.
  int64_t completed_ns = 0;
};

CallWait DescribeCall(GraphBuilder& graph, const ViewWaits& waits, uint64_t number, uint32_t id) {
  CallWait call{number, id};
  for (const Member& each : waits.members) {
    if (each.is_live()) {
      call.most_launches = std::max(call.most_launches, each.rank->communicator->launches);
    }
    if (each.doing != Doing::kInside || NumberOf(waits, each) != number) continue;
    if (each.is_live()) {
      call.began_ns = std::max(call.began_ns, each.since_ns);
      const HostThread& thread = graph.ThreadOf(*each.rank);
      const bool is_moving = thread.first_moving_ns != INT64_MAX;
      if (!is_moving) call.completed_ns = std::max(call.completed_ns, thread.completed_ns);
      call.oldest_ns = std::min(call.oldest_ns, each.launched_ns);
    }
    call.is_any_begun |= each.is_begun;
  }
  if (call.began_ns != 0) return call;
  for (const Member& each : waits.members) {
    if (FrontOf(each) == number) call.began_ns = std::max(call.began_ns, each.since_ns);
  }
  return call;
}

// Adds the arrow to a rank that has not made the call.
void PointToOwing(GraphBuilder& graph, std::size_t i, std::size_t at, const CallWait& call) {
  ViewWaits& waits = graph.waits(i);
  const Member& each = waits.members[at];
  const RankView& rank = *each.rank;
  if (rank.state == RankView::State::kFinalized && !graph.LeftWaiting(rank, call.began_ns)) {
    return graph.Point(call.id, graph.Left(i, rank), Sure::kMust);
  }
  if (graph.PointToCause(call.id, rank, call.began_ns, Sure::kMust)) return;
  const bool is_unseen = each.doing == Doing::kUnknown || each.doing == Doing::kUnreported;
  if (is_unseen && !IsExiting(rank) && !IsNamedByCounts(waits.facts, rank)) {
    return graph.Point(call.id, graph.Unknown(i), Sure::kMust);
  }
  // The rank is inside a call that others have left, as a Broadcast's root may have. Only dumps
  // show exactly which other calls have completed.
  const bool is_inside_earlier =
      each.doing == Doing::kInside &&
      (rank.process->is_of_dump ? each.is_front_exact
                                : !graph.view(i).has_point_to_point && each.is_live() &&
                                      !WaitsForAll(rank.communicator->last_call_op));
  const uint32_t gpu = waits.gpus[at];
  if (is_inside_earlier || (gpu != kNoActor && graph.actor(gpu).state == ActorState::kMoving)) {
    return graph.Point(call.id, gpu, Sure::kMust);
  }
  graph.Point(call.id, graph.Host(rank), Sure::kMust);
  graph.Owe(rank, i);
}

// Adds the arrow to a rank that has made the call, if it has not arrived there.
void PointToCaller(GraphBuilder& graph, std::size_t i, std::size_t at, const CallWait& call) {
  const ViewWaits& waits = graph.waits(i);
  const Member& each = waits.members[at];
  const bool has_peers = graph.view(i).has_point_to_point;
  // A rank that ended well before the last GPU came is a cause, although it had waited before.
  const int64_t came_ns = std::max(call.began_ns, call.completed_ns - 2 * kCauseSlackNs);
  const std::optional<LastEvent> cause = CauseOf(*each.rank, came_ns);
  // A rank that had waited for one that is not seen, before it ended.
  const bool is_victim = cause && HadWaited(each, cause->at_ns) && graph.DoAllSeenWait(i);
  if (cause && !is_victim && IsHeldUpByEvent(*cause, each, call.most_launches)) {
    return graph.Point(call.id, graph.Event(*each.rank, *cause, came_ns), Sure::kMust);
  }
  const bool is_gpu_behind =
      each.doing == Doing::kNotBegun
          ? FrontOf(each) <= call.number && call.is_any_begun && (each.is_front_exact || !has_peers)
          : each.doing == Doing::kInside && each.front != 0 && NumberOf(waits, each) < call.number;
  if (is_gpu_behind) return graph.Point(call.id, waits.gpus[at], Sure::kMust);
  const CommunicatorSnapshot& communicator = *each.rank->communicator;
  const bool is_host_behind = each.doing == Doing::kUnreported && each.is_live() && !has_peers &&
                              communicator.launches < call.most_launches &&
                              communicator.last_launch_realtime_ns < call.oldest_ns;
  if (!is_host_behind) return;
  graph.actor(graph.Host(*each.rank)).state = ActorState::kInsideNccl;
  graph.Point(call.id, graph.Host(*each.rank), Sure::kMust);
}

// Last resorts, in turn, if each rank that is seen has come to the call.
void AddLastResorts(GraphBuilder& graph, std::size_t i, const CallWait& call) {
  const ViewWaits& waits = graph.waits(i);
  const CommunicatorFacts& facts = waits.facts;
  const auto is_any = [&] { return !graph.actor(call.id).arrows.empty(); };
  // A stopped process' GPU continues, but its network threads do not.
  const bool do_all_live =
      facts.are_all_live() || std::all_of(facts.live.begin(), facts.live.end(),
                                          [](const RankView* rank) { return rank->is_stopped; });
  for (const RankView* rank : do_all_live ? facts.live : Ranks()) {
    const std::optional<LastEvent> cause = CauseOf(*rank, call.began_ns);
    if (!cause || cause->kind != LastEvent::Kind::kStopped) continue;
    graph.Point(call.id, graph.Event(*rank, *cause, call.began_ns), Sure::kMust);
  }
  // A rank has left a call in which live ranks wait, and which no rank leaves before all others
  // have arrived. One that leaves long after the wait began, as a watchdog does, is no cause of it.
  const bool is_any_live = call.oldest_ns != INT64_MAX;
  if (call.number != 0 && is_any_live && !is_any()) {
    for (const Member& each : waits.members) {
      const CommunicatorSnapshot& left = *each.rank->communicator;
      if (each.rank->state == RankView::State::kFinalized &&
          (WaitsForAll(left.last_call_op) || graph.counts_launches(i)) &&
          ElapsedNs(left.last_completion_realtime_ns, call.began_ns) < kCauseSlackNs) {
        graph.Point(call.id, graph.Left(i, *each.rank), Sure::kMust);
      }
    }
  }
  // A rank whose process was last polled before the wait began may not be inside the call.
  const auto is_unknown = [&call](const Member& each) {
    return each.is_live() && (each.doing == Doing::kUnknown ||
                              (each.rank->is_stopped && !CauseOf(*each.rank, call.began_ns)));
  };
  if (call.number != 0 && !is_any() &&
      std::any_of(waits.members.begin(), waits.members.end(), is_unknown)) {
    graph.Point(call.id, graph.Unknown(i), Sure::kMust);
  }
  if (!facts.are_all_seen() && graph.view(i).are_all_expected && !is_any()) {
    graph.Point(call.id, graph.Unseen(i), Sure::kMust);
  }
}

// True if launches may progress unseen: events may show only the end of the last of several
// launches in flight, and the GPUs were far behind when the last completion was seen.
bool MayMove(const GraphBuilder& graph, const ViewWaits& waits) {
  bool is_any = false;
  for (const Member& each : waits.members) {
    if (!each.is_live() || !each.is_in_flight()) continue;
    const int64_t behind_ns =
        each.launched_ns == 0
            ? 0
            : ElapsedNs(each.rank->communicator->last_completion_realtime_ns, each.launched_ns);
    if (IsAtFront(each) || graph.Age(each.since_ns) / kQueuedFactor >= behind_ns) return false;
    is_any = true;
  }
  return is_any;
}

void PointToMismatch(GraphBuilder& graph, std::size_t i, uint64_t number, uint32_t call) {
  const uint32_t differ =
      graph.Add({ActorKind::kMismatch, ActorState::kMismatched, 0, i, nullptr, number});
  graph.Point(call, differ, Sure::kMust);
}

void AddArrowsOfCall(GraphBuilder& graph, std::size_t i, uint64_t number, uint32_t id) {
  ViewWaits& waits = graph.waits(i);
  const CommunicatorFacts& facts = waits.facts;
  const bool is_of_peers = waits.mismatch && waits.mismatch->is_of_peers();
  if (waits.mismatch && !is_of_peers) return PointToMismatch(graph, i, number, id);
  // Mismatched calls are not compared (waits.mismatch) while the ranks still make calls.
  if (facts.is_mismatched) return graph.Point(id, graph.Unknown(i), Sure::kMust);
  const CallWait call = DescribeCall(graph, waits, number, id);
  graph.actor(id).since_ns = call.began_ns;
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const bool owes = waits.members[at].called < number;
    (owes ? PointToOwing : PointToCaller)(graph, i, at, call);
  }
  if (graph.actor(id).arrows.empty()) AddLastResorts(graph, i, call);
  if (!graph.actor(id).arrows.empty()) return;
  if (MayMove(graph, waits)) {
    graph.actor(id).state = ActorState::kMoving;
    waits.has_backlog = true;
  } else if (facts.are_all_seen() && !is_of_peers) {
    waits.mismatch = CompareCallOrder(facts, Compared::kAll);
    if (waits.mismatch) PointToMismatch(graph, i, number, id);
  }
}

}  // namespace

uint64_t FrontOf(const Member& each) { return each.front != 0 ? each.front : each.called; }

uint64_t NumberOf(const ViewWaits& waits, const Member& each) {
  uint64_t number = FrontOf(each);
  if (each.is_front_exact && each.rank->process->is_of_dump) return number;
  // A GPU about to enter a call has completed the previous one, at which all ranks must have
  // arrived.
  for (const std::size_t at : waits.outside) {
    const Member& other = waits.members[at];
    const bool has_passed = other.doing == Doing::kNotBegun && other.is_front_exact &&
                            other.front > number && other.front <= each.called &&
                            WaitsForAll(OpOf(other, other.front - 1));
    if (has_passed && !IsAtFront(each)) number = other.front;
  }
  const bool waits_for_all = WaitsForAll(each.rank->communicator->last_call_op);
  uint64_t idle = UINT64_MAX;
  for (const std::size_t at : waits.outside) {
    const Member& other = waits.members[at];
    // Events may not show how far the GPU of `each` has come. A process that began to exit when the
    // wait began has not made the awaited call.
    const bool has_left =
        IsExiting(*other.rank) && !IsAtFront(each) &&
        ElapsedNs(other.rank->process->last_poll_realtime_ns, each.since_ns) < kCauseSlackNs;
    if (other.doing != Doing::kIdle && !has_left) continue;
    // The root of a Broadcast may be done while others still wait in it.
    if (!waits_for_all && !WaitsForAll(other.rank->communicator->last_call_op)) continue;
    idle = std::min(idle, other.called);
  }
  return idle < each.called ? std::max(number, idle + 1) : number;
}

bool UsesCall(GraphBuilder& graph, std::size_t i, const Member& each) {
  return FrontOf(each) != 0 &&
         (!graph.view(i).has_point_to_point || graph.counts_launches(i) ||
          (each.in_flight == 1 && IsCollective(each.rank->communicator->last_call_op)) ||
          IsOwedProven(graph.waits(i).facts));
}

void AddCalls(GraphBuilder& graph) {
  for (std::size_t i = 0; i < graph.views().size(); ++i) {
    for (const auto& [number, call] : graph.calls(i)) AddArrowsOfCall(graph, i, number, call);
  }
}

}  // namespace nccl_pulse
