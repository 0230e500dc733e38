#include <algorithm>

#include "exporter/diagnosis/facts/member.h"
#include "exporter/diagnosis/waits/arrow_rules.h"

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

// Returns the ranks that have called least. A rank whose own calls are unreported is named only if
// it can't wait for a call of another rank.
Ranks NamedByCounts(const CommunicatorFacts& facts) {
  Ranks named;
  if (!facts.are_all_live() || facts.view->has_point_to_point) return named;
  for (const RankView* rank : facts.behind) {
    if (Contains(facts.unreported, rank) && facts.IsFurthestBehind(*rank)) {
      named.push_back(rank);
    }
  }
  return named;
}

void PointToOwing(GraphBuilder& graph, std::size_t i, std::size_t at, uint32_t call,
                  int64_t began_ns) {
  ViewWaits& waits = graph.waits(i);
  const Member& each = waits.members[at];
  const RankView& rank = *each.rank;
  if (rank.state == RankView::State::kFinalized && !graph.LeftWaiting(rank, began_ns)) {
    return graph.Point(call, graph.Left(i, rank), Sure::kMust);
  }
  if (graph.PointToCause(call, rank, began_ns, Sure::kMust)) return;
  const bool is_unseen = each.doing == Doing::kUnknown || each.doing == Doing::kUnreported;
  if (is_unseen && !IsExiting(rank) && !Contains(NamedByCounts(waits.facts), &rank)) {
    return graph.Point(call, graph.Unknown(i), Sure::kMust);
  }
  if (waits.gpus[at] != kNoActor && graph.actor(waits.gpus[at]).state == ActorState::kMoving) {
    return graph.Point(call, waits.gpus[at], Sure::kMust);
  }
  // The rank is inside a call that others have left, as a Broadcast's root may have. Only dumps
  // show exactly which other calls have completed.
  const bool is_inside_earlier =
      each.doing == Doing::kInside &&
      (rank.process->is_of_dump ? each.is_front_exact
                                : !graph.view(i).has_point_to_point && each.is_live() &&
                                      !WaitsForAll(rank.communicator->last_call_op));
  if (is_inside_earlier) return graph.Point(call, waits.gpus[at], Sure::kMust);
  graph.Point(call, graph.Host(rank), Sure::kMust);
  graph.Owe(rank, i);
}

// Last resort: adds stopped ranks as the cause. A stopped process' GPU continues, but its network
// threads do not.
void AddStopped(GraphBuilder& graph, std::size_t i, uint32_t call, int64_t began_ns) {
  for (const Member& each : graph.waits(i).members) {
    const std::optional<LastEvent> cause = CauseOf(*each.rank, began_ns);
    if (cause && cause->kind == LastEvent::Kind::kStopped && each.is_live()) {
      graph.Point(call, graph.Event(*each.rank, *cause, began_ns), Sure::kMust);
    }
  }
}

// Last resort: adds a rank that has left a call which no rank leaves before all others have
// arrived. A rank that leaves long after the wait began, as after a watchdog's abort, is not its
// cause.
void AddAborted(GraphBuilder& graph, std::size_t i, uint32_t call, int64_t began_ns) {
  for (const Member& left : graph.waits(i).members) {
    const CommunicatorSnapshot& communicator = *left.rank->communicator;
    if (left.rank->state == RankView::State::kFinalized && WaitsForAll(communicator.last_call_op) &&
        ElapsedNs(communicator.last_completion_realtime_ns, began_ns) < kCauseSlackNs) {
      graph.Point(call, graph.Left(i, *left.rank), Sure::kMust);
    }
  }
}

// For a call that all ranks have made: adds unknown causes for ranks not seen since, which may not
// be inside the call.
void AddUnknownMembers(GraphBuilder& graph, std::size_t i, uint32_t call, int64_t began_ns) {
  for (const Member& each : graph.waits(i).members) {
    const bool is_unknown =
        each.doing == Doing::kUnknown || (each.rank->is_stopped && !CauseOf(*each.rank, began_ns));
    if (each.is_live() && is_unknown) return graph.Point(call, graph.Unknown(i), Sure::kMust);
  }
}

// True if launches may progress unseen: events may show only the end of the last of several
// launches in flight, and the GPUs were far behind when the last completion was seen.
bool MayMove(const GraphBuilder& graph, const ViewWaits& waits) {
  bool is_any = false;
  for (const Member& each : waits.members) {
    if (!each.is_live() || !each.is_in_flight()) continue;
    const CommunicatorSnapshot& communicator = *each.rank->communicator;
    const int64_t behind_ns =
        each.launched_ns == 0
            ? 0
            : ElapsedNs(communicator.last_completion_realtime_ns, each.launched_ns);
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

void AddArrowsOfCall(GraphBuilder& graph, std::size_t i, uint64_t number, uint32_t call) {
  ViewWaits& waits = graph.waits(i);
  const CommunicatorFacts& facts = waits.facts;
  if (waits.mismatch) return PointToMismatch(graph, i, number, call);
  if (facts.is_mismatched)
    return graph.Point(call, graph.Unknown(i), Sure::kMust);  // the ranks still make calls
  int64_t began_ns = 0;
  bool is_any_begun = false;
  uint64_t most_launches = 0;
  int64_t oldest_ns = INT64_MAX;
  for (const Member& each : waits.members) {
    if (each.is_live()) {
      most_launches = std::max(most_launches, each.rank->communicator->launches);
    }
    if (each.doing != Doing::kInside || NumberOf(waits, each) != number) continue;
    if (each.is_live()) {
      began_ns = std::max(began_ns, each.since_ns);
      oldest_ns = std::min(oldest_ns, each.launched_ns);
    }
    is_any_begun |= each.is_begun;
  }
  if (began_ns == 0) {
    for (const Member& each : waits.members) {
      if (FrontOf(each) == number) began_ns = std::max(began_ns, each.since_ns);
    }
  }
  graph.actor(call).since_ns = began_ns;
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const Member& each = waits.members[at];
    if (each.called < number) {
      PointToOwing(graph, i, at, call, began_ns);
      continue;
    }
    const std::optional<LastEvent> cause = CauseOf(*each.rank, began_ns);
    if (cause && IsHeldUpByEvent(*cause, each, most_launches)) {
      graph.Point(call, graph.Event(*each.rank, *cause, began_ns), Sure::kMust);
    } else if (each.doing == Doing::kNotBegun) {
      const bool are_compared = each.is_front_exact || !facts.view->has_point_to_point;
      if (FrontOf(each) <= number && is_any_begun && are_compared) {
        graph.Point(call, waits.gpus[at], Sure::kMust);
      }
    } else if (each.doing == Doing::kInside) {
      if (each.front != 0 && NumberOf(waits, each) < number) {
        graph.Point(call, waits.gpus[at], Sure::kMust);
      }
    } else if (each.doing == Doing::kUnreported && each.is_live() &&
               !facts.view->has_point_to_point &&
               each.rank->communicator->launches < most_launches &&
               each.rank->communicator->last_launch_realtime_ns < oldest_ns) {
      graph.actor(graph.Host(*each.rank)).state = ActorState::kInsideNccl;
      graph.Point(call, graph.Host(*each.rank), Sure::kMust);
    }
  }
  // An unseen rank is the cause only if no seen rank is.
  const bool are_all_seen = static_cast<int32_t>(waits.members.size()) >= graph.view(i).nranks;
  const bool do_all_live =
      facts.are_all_live() || std::all_of(facts.live.begin(), facts.live.end(),
                                          [](const RankView* rank) { return rank->is_stopped; });
  if (graph.actor(call).arrows.empty() && do_all_live) AddStopped(graph, i, call, began_ns);
  if (number != 0 && graph.actor(call).arrows.empty()) AddAborted(graph, i, call, began_ns);
  if (number != 0 && graph.actor(call).arrows.empty()) AddUnknownMembers(graph, i, call, began_ns);
  if (!are_all_seen && graph.view(i).are_all_expected && graph.actor(call).arrows.empty()) {
    graph.Point(call, graph.Unseen(i), Sure::kMust);
  }
  if (graph.actor(call).arrows.empty() && MayMove(graph, waits)) {
    graph.actor(call).state = ActorState::kMoving;
    waits.has_backlog = true;
  } else if (graph.actor(call).arrows.empty() && are_all_seen) {
    waits.mismatch = CompareCallOrder(facts, Compared::kAll);
    if (waits.mismatch) PointToMismatch(graph, i, number, call);
  }
}

}  // namespace

uint64_t FrontOf(const Member& each) { return each.front != 0 ? each.front : each.called; }

uint64_t NumberOf(const ViewWaits& waits, const Member& each) {
  uint64_t number = FrontOf(each);
  if (each.is_front_exact && each.rank->process->is_of_dump) return number;
  // A GPU about to enter a call has completed the previous one, at which all ranks must have
  // arrived.
  for (const Member& other : waits.members) {
    const bool has_passed = other.is_live() && other.doing == Doing::kNotBegun &&
                            other.is_front_exact && other.front > number &&
                            other.front <= each.called && WaitsForAll(OpOf(other, other.front - 1));
    if (has_passed && !IsAtFront(each)) number = other.front;
  }
  const bool waits_for_all = WaitsForAll(each.rank->communicator->last_call_op);
  uint64_t idle = UINT64_MAX;
  for (const Member& other : waits.members) {
    if (!other.is_live() || other.doing != Doing::kIdle) continue;
    // Only for a Broadcast is the root done while others still wait in it.
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

// Repeats until no arrow is added, because hosts found to lack a call add arrows to further calls.
void AddCalls(GraphBuilder& graph) {
  for (std::size_t i = 0; i < graph.views().size(); ++i) {
    for (const auto& [number, call] : graph.calls(i)) AddArrowsOfCall(graph, i, number, call);
  }
}

}  // namespace nccl_pulse
