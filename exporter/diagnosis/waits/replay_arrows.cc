#include <algorithm>

#include "exporter/diagnosis/waits/graph_builder.h"

namespace nccl_pulse {
namespace {

// Returns the ranks that are behind outside of graphs. Empty if none or too many are, if a rank is
// not live, or if each of two ranks lacks a call of the other.
Ranks FindBehindBesideGraphs(GraphBuilder& graph, std::size_t i) {
  Calls most;
  for (const Member& each : graph.waits(i).members) {
    Calls calls = CollectiveCalls(*each.rank->communicator);
    if (Total(calls) > Total(most)) most = std::move(calls);
  }
  Ranks behind;
  for (const Member& each : graph.waits(i).members) {
    const Calls calls = CollectiveCalls(*each.rank->communicator);
    if (!each.is_live() || !Excess(calls, most).empty()) return {};
    if (!Excess(most, calls).empty()) behind.push_back(each.rank);
  }
  return behind.size() <= kMostFollowed ? behind : Ranks();
}

// Adds arrows by the counted calls outside of CUDA graphs: if all ranks have ended the same
// replays, the ranks with fewer of these calls block a rank that waits in one.
bool AddBehindBesideGraphs(GraphBuilder& graph, std::size_t i, std::size_t at,
                           std::optional<Ranks>* known_behind) {
  const ViewWaits& waits = graph.waits(i);
  const Member& each = waits.members[at];
  const ReplayFacts& replays = waits.facts.replays;
  const bool is_any_within =
      std::any_of(waits.members.begin(), waits.members.end(),
                  [](const Member& other) { return other.rank->activity.is_in_replay; });
  if (replays.known != ReplaysKnown::kYes || !replays.behind.empty() || is_any_within ||
      each.in_flight != 1 || !WaitsForAll(each.rank->communicator->last_call_op)) {
    return false;
  }
  if (!*known_behind) *known_behind = FindBehindBesideGraphs(graph, i);
  const Ranks& behind = **known_behind;
  if (Contains(behind, each.rank)) return false;
  for (const RankView* rank : behind) {
    graph.Point(waits.gpus[at], graph.Host(*rank), Sure::kMust);
    graph.Owe(*rank, i);
  }
  return !behind.empty();
}

}  // namespace

// Adds arrows if calls can't be compared: they were counted without their operation, or captured
// into graphs that are not followed.
void AddNotComparable(GraphBuilder& graph, std::size_t i, std::size_t at,
                      std::optional<Ranks>* behind_beside_graphs) {
  ViewWaits& waits = graph.waits(i);
  const Member& each = waits.members[at];
  const uint32_t gpu = waits.gpus[at];
  bool is_any = AddBehindBesideGraphs(graph, i, at, behind_beside_graphs);
  for (const Member& other : waits.members) {
    const std::optional<LastEvent> own = LastEventOf(*other.rank);
    if (other.rank == each.rank && !(own && own->kind == LastEvent::Kind::kStopped)) continue;
    if (graph.PointToCause(gpu, *other.rank, each.since_ns, Sure::kMust)) {
      is_any = true;
    } else if (IsExiting(*other.rank)) {
      graph.Point(gpu, graph.Host(*other.rank), Sure::kMay);
      is_any = true;
    } else if (other.rank->state == RankView::State::kFinalized && !other.is_in_flight()) {
      graph.Point(gpu, graph.Left(i, *other.rank), Sure::kMay);
      is_any = true;
    }
  }
  if (!is_any) graph.Point(gpu, graph.Unknown(i), Sure::kMust);
}

void AddReplays(GraphBuilder& graph, std::size_t i) {
  ViewWaits& waits = graph.waits(i);
  const CommunicatorFacts& facts = waits.facts;
  const ReplayFacts& replays = facts.replays;
  const bool are_told =
      replays.known == ReplaysKnown::kYes && (!replays.behind.empty() || replays.are_all_within);
  if (are_told) {
    const uint32_t call = graph.Call(i, 0);
    int64_t began_ns = 0;
    for (std::size_t at = 0; at < waits.members.size(); ++at) {
      const Member& each = waits.members[at];
      if (waits.gpus[at] == kNoActor || Contains(replays.behind, each.rank)) continue;
      if (graph.actor(waits.gpus[at]).state == ActorState::kMoving) continue;
      if (each.doing == Doing::kNotBegun && !replays.behind.empty()) {
        graph.TakeForBegun(waits.gpus[at], each);
      }
      began_ns = std::max(began_ns, each.since_ns);
      graph.Point(waits.gpus[at], call, Sure::kMust);
    }
    for (const Member& each : waits.members) {
      graph.PointToCause(call, *each.rank, began_ns, Sure::kMust);
    }
    for (const RankView* rank : replays.behind) {
      graph.actor(graph.Host(*rank)).state =
          std::min(graph.actor(graph.Host(*rank)).state, ActorState::kBehindReplay);
      graph.Point(call, graph.Host(*rank), Sure::kMust);
    }
    return;
  }
  waits.facts.work = CompareWork(graph.view(i), graph.view(i).hang_after_ns, graph.now_ns());
  const WorkFacts& work = facts.work;
  if (!work.is_stalled()) return;
  const uint32_t call = graph.Call(i, 0);
  for (const RankView* rank : work.busy) {
    const int64_t moved_ns = rank->communicator->work.moved_realtime_ns;
    const int64_t since_ns = moved_ns == 0 ? work.since_ns : moved_ns;
    uint32_t& gpu = waits.gpus[rank - graph.view(i).ranks.data()];
    if (gpu == kNoActor) {
      gpu = graph.Add(
          {ActorKind::kGpu, ActorState::kInside, since_ns, i, rank, 0, graph.IsLong(i, since_ns)});
    }
    graph.Point(gpu, call, Sure::kMust);
  }
  // If only a few GPUs are busy, these may run kernels of their own.
  if (work.idle.size() > work.busy.size()) return graph.Point(call, graph.Unknown(i), Sure::kMust);
  for (const RankView* rank : work.idle) {
    const uint32_t idle = graph.Add({ActorKind::kGpu, ActorState::kIdleGpu, 0, i, rank});
    graph.Point(call, idle, Sure::kMust);
  }
}

}  // namespace nccl_pulse
