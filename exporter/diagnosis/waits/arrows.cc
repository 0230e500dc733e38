#include "exporter/diagnosis/waits/arrows.h"

#include <algorithm>
#include <utility>

#include "exporter/diagnosis/waits/own_work.h"

namespace nccl_pulse {
namespace {

// Adds an unknown cause: the calls in which the ranks wait can't be compared.
void AddUnknown(GraphBuilder& graph, std::size_t i) {
  for (const uint32_t gpu : graph.waits(i).gpus) {
    if (gpu != kNoActor && graph.actor(gpu).state != ActorState::kMoving) {
      graph.Point(gpu, graph.Unknown(i), Sure::kMust);
    }
  }
}

void FindMismatch(ViewWaits* waits) {
  const CommunicatorFacts& facts = waits->facts;
  if (facts.calls_known != CallsKnown::kYes) return;
  waits->mismatch = CompareCallOrder(facts, Compared::kInFlight);
  if (!waits->mismatch && facts.is_quiet && facts.is_mismatched) {
    waits->mismatch = CompareSides(facts);
  }
}

// True if all calls that idle ranks lack are among the others' launches in flight. Otherwise an
// unreported call may have begun before these.
bool AreOwedLaunched(const CommunicatorFacts& facts) {
  const uint64_t owed = Total(facts.owed);
  return std::all_of(facts.live.begin(), facts.live.end(), [owed](const RankView* rank) {
    const CommunicatorSnapshot& communicator = *rank->communicator;
    return !rank->activity.is_in_flight() ||
           communicator.launches - communicator.launches_completed >= owed;
  });
}

// True if most ranks have aborted the communicator and continued. A rank that is still in it then
// waits only for its own host.
bool HaveMostLeft(GraphBuilder& graph, const ViewWaits& waits) {
  int gone_on = 0;
  int in_flight = 0;
  for (const Member& each : waits.members) {
    gone_on += HasGoneOnSinceAbort(graph.ThreadOf(*each.rank), each) ? 1 : 0;
    in_flight += each.is_live() && each.is_in_flight() ? 1 : 0;
  }
  return gone_on > in_flight;
}

// Returns the number of the last collective that a rank has completed. Only dumps know it exactly;
// 0: no dump.
uint64_t LastCompleted(const ViewWaits& waits) {
  uint64_t last = 0;
  for (const Member& each : waits.members) {
    if (!each.rank->process->is_of_dump) return 0;
    if (each.doing == Doing::kIdle) last = std::max(last, each.called);
    if (each.front != 0) last = std::max(last, each.front - 1);
  }
  return last;
}

void AddWaits(GraphBuilder& graph, OwnWork& own_work, std::size_t i) {
  const CommunicatorView& view = graph.view(i);
  ViewWaits& waits = graph.waits(i);
  if (view.is_mixed) return AddUnknown(graph, i);
  FindMismatch(&waits);
  if (AddBeingMade(graph, i)) return;
  const CommunicatorFacts& facts = waits.facts;
  const bool is_comparable = facts.calls_known == CallsKnown::kYes;
  if (facts.calls_known == CallsKnown::kCaptured) AddReplays(graph, i);
  // If more calls are missing than launches are in flight, an unreported call may have begun before
  // the launches that have not begun.
  const bool is_begun_hidden =
      is_comparable && IsBehindOwnWork(facts) && IsOwedProven(facts) && !AreOwedLaunched(facts);
  waits.is_left = HaveMostLeft(graph, waits);
  std::optional<Ranks> behind_beside_graphs;
  const uint64_t completed = LastCompleted(waits);
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const Member& each = waits.members[at];
    if (waits.gpus[at] == kNoActor) continue;
    if (graph.actor(waits.gpus[at]).state == ActorState::kMoving) continue;
    if (waits.is_left) {
      graph.Point(waits.gpus[at], graph.Host(*each.rank), Sure::kMust);
    } else if (each.doing == Doing::kNotBegun && (is_begun_hidden || waits.mismatch)) {
      graph.TakeForBegun(waits.gpus[at], each);
      graph.Point(waits.gpus[at], graph.Call(i, FrontOf(each)), Sure::kMust);
    } else if (each.doing == Doing::kNotBegun && !facts.replays.behind.empty()) {
      continue;  // this GPU is behind a replay that others have not begun
    } else if (each.doing == Doing::kNotBegun) {
      own_work.AddBehind(i, at);
    } else if (view.nranks == 1) {
      if (!each.is_begun) own_work.AddBehind(i, at);
      Actor& gpu = graph.actor(waits.gpus[at]);
      if (gpu.arrows.empty() && gpu.state != ActorState::kMoving) gpu.state = ActorState::kAlone;
    } else if (each.front <= completed && each.is_front_exact &&
               WaitsForAll(OpOf(each, each.front))) {
      graph.actor(waits.gpus[at]).state = ActorState::kAlone;  // all other ranks have arrived
    } else if (is_comparable && UsesCall(graph, i, each)) {
      graph.Point(waits.gpus[at], graph.Call(i, NumberOf(waits, each)), Sure::kMust);
    } else if (!is_comparable && graph.actor(waits.gpus[at]).arrows.empty()) {
      AddNotComparable(graph, i, at, &behind_beside_graphs);
    }
  }
  if (is_comparable && view.has_point_to_point) AddPeers(graph, i);
  AddInsideNccl(graph, i);
  if (is_comparable) AddUnreported(graph, i);
}

}  // namespace

Waits BuildWaits(const std::vector<CommunicatorView>& views, int64_t now_realtime_ns) {
  GraphBuilder graph(views, now_realtime_ns);
  OwnWork own_work(graph);
  for (std::size_t i = 0; i < views.size(); ++i) AddWaits(graph, own_work, i);
  AddCalls(graph);
  for (const HostThread& thread : graph.threads()) own_work.AddOfHost(thread);
  for (const HostThread& thread : graph.threads()) own_work.AddBeforeEvent(thread);
  for (const HostThread& thread : graph.threads()) own_work.AddUnawaitedEvent(thread);
  return graph.Take();
}

}  // namespace nccl_pulse
