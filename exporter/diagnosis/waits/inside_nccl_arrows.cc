#include <algorithm>

#include "exporter/diagnosis/waits/graph_builder.h"

namespace nccl_pulse {
namespace {

// The first connections of a large job take tens of seconds. NCCL gives up a connection that is
// refused within a minute or so (src/misc/socket.cc, 2.28).
constexpr int64_t kLongConnectNs = 300000000000;

// True if the process has made progress since it joined this communicator.
bool HasGoneOn(const RankView& rank) {
  const CommunicatorSnapshot& made = *rank.communicator;
  if (made.launches != 0 || !made.calls.empty() || made.captured) return true;
  if (AreCallsKnown(*rank.process, made) != CallsKnown::kYes) return true;
  const auto& all = rank.process->communicators;
  return std::any_of(all.begin(), all.end(), [&made](const CommunicatorSnapshot& each) {
    return std::max({each.last_launch_realtime_ns, each.unreported_since_realtime_ns,
                     each.graph_moved_realtime_ns, each.init_realtime_ns}) > made.init_realtime_ns;
  });
}

// True if only one rank has called more, and only operations that a rank can leave early: it may be
// the root, and have left.
bool MayAllHaveLeft(const CommunicatorFacts& facts, const Ranks& behind) {
  Calls least = facts.CallsOf(*behind.front());
  for (const RankView* rank : behind) least = Common(least, facts.CallsOf(*rank));
  const auto ahead =
      std::count_if(facts.calls.begin(), facts.calls.end(),
                    [&least](const Calls& calls) { return !Excess(calls, least).empty(); });
  if (ahead != 1) return false;
  for (const RankView* rank : behind) {
    for (const auto& [kind, count] : Excess(facts.calls[facts.most], facts.CallsOf(*rank))) {
      if (WaitsForAll(kind.first)) return false;
    }
  }
  return true;
}

// Returns the ranks of `other` that are not seen in `here`, if all other ranks are the same in
// both.
Ranks AbsentIn(const CommunicatorView& other, const CommunicatorView& here) {
  if (other.nranks != here.nranks || other.is_mixed) return {};
  for (const RankView& rank : here.ranks) {
    const RankView* there = other.Find(rank.rank());
    if (there == nullptr || there->process != rank.process) return {};
  }
  Ranks absent;
  for (const RankView& rank : other.ranks) {
    if (here.Find(rank.rank()) == nullptr) absent.push_back(&rank);
  }
  return absent;
}

bool DoAllConnect(GraphBuilder& graph, const CommunicatorFacts& facts) {
  return facts.are_all_live() &&
         std::all_of(facts.live.begin(), facts.live.end(), [&](const RankView* rank) {
           return rank->communicator->are_unreported_in_group &&
                  graph.Age(UnreportedSince(*facts.view, *rank)) >= kLongConnectNs;
         });
}

// Finds the processes of the missing ranks, by another communicator with the same other ranks.
Ranks FindAbsent(GraphBuilder& graph, std::size_t i) {
  constexpr std::size_t kLeastAlike = 2;  // a single common rank would prove nothing
  const CommunicatorView& view = graph.view(i);
  if (view.ranks.size() < kLeastAlike) return {};
  for (const std::size_t number : graph.ThreadsOf(view.ranks.front().process)) {
    const HostThread& thread = graph.threads()[number];
    if (thread.members.size() > kMostFollowed * kMostFollowed) continue;
    for (const MemberIndex& at : thread.members) {
      if (at.view == i) continue;
      Ranks absent = AbsentIn(graph.view(at.view), view);
      if (!absent.empty()) return absent;
    }
  }
  return {};
}

// Adds arrows from a connecting host to the ranks that have not arrived. NCCL does not report for
// which of them it waits. So only a rank without any call, while all others have come, is certain.
void AddNotCome(GraphBuilder& graph, std::size_t i, uint32_t host) {
  const ViewWaits& waits = graph.waits(i);
  const int64_t since_ns = graph.actor(host).since_ns;
  const auto come = std::count_if(
      waits.members.begin(), waits.members.end(),
      [](const Member& each) { return each.doing == Doing::kInside || IsInsideNccl(each); });
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const Member& each = waits.members[at];
    if (each.rank->state == RankView::State::kFinalized) continue;
    if (each.doing != Doing::kIdle && each.doing != Doing::kNotBegun) continue;
    const bool is_last = come + 1 == graph.view(i).nranks && each.rank->communicator->calls.empty();
    const Sure sure = is_last ? Sure::kMay : Sure::kPerhaps;
    if (graph.PointToCause(host, *each.rank, since_ns, sure)) continue;
    const uint32_t waits_for = each.doing == Doing::kIdle ? graph.Host(*each.rank) : waits.gpus[at];
    graph.Point(host, waits_for, sure);
  }
}

// True if the rank has waited for long enough to be followed; a rank that has ended: until its end.
bool HasConnectedForLong(const GraphBuilder& graph, std::size_t i, const Member& each) {
  return each.is_live() ? graph.IsHalf(i, each.since_ns)
                        : HadWaited(each, LastEventOf(*each.rank)->at_ns);
}

// Notes that the rank's host waits here.
Actor& AddWait(GraphBuilder& graph, std::size_t i, const Member& each, int64_t since_ns) {
  Actor& host = graph.actor(graph.Host(*each.rank));
  host.since_ns = since_ns;
  host.view = i;
  host.is_start |= each.is_live() && graph.IsLong(i, since_ns);
  return host;
}

}  // namespace

// Adds arrows for a Send or Recv that was called but not launched.
void AddInsideNccl(GraphBuilder& graph, std::size_t i) {
  ViewWaits& waits = graph.waits(i);
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const Member& each = waits.members[at];
    if (!IsInsideNccl(each) || !IsLaunchAlwaysReported(*each.rank->communicator)) continue;
    if (!HasConnectedForLong(graph, i, each)) continue;
    AddWait(graph, i, each, each.since_ns).state = ActorState::kInsideNccl;
    if (each.rank->communicator->are_unreported_in_group) AddPeerByCounts(graph, i, at);
    const uint32_t id = graph.Host(*each.rank);
    if (graph.actor(id).arrows.empty()) AddNotCome(graph, i, id);
    if (graph.DoAllSeenWait(i) && graph.actor(id).arrows.empty())
      graph.Point(id, graph.Unseen(i), Sure::kMay);
  }
}

// Adds arrows for collectives whose launches NCCL does not report: only their calls are compared,
// once no rank makes further calls.
void AddUnreported(GraphBuilder& graph, std::size_t i) {
  ViewWaits& waits = graph.waits(i);
  const CommunicatorFacts& facts = waits.facts;
  if (facts.unreported.empty()) return;
  Ranks waiting;
  for (const RankView* rank : facts.live) {
    if (!facts.HasCalledAll(*rank)) continue;
    if (!Contains(facts.unreported, rank)) return;  // it makes progress, or is idle
    waiting.push_back(rank);
  }
  for (const RankView* rank : facts.behind) {
    if (rank->activity.is_in_flight()) return;  // it may still arrive
    if (rank->activity.reason == UnknownReason::kLaunchNotReported &&
        !Contains(facts.unreported, rank)) {
      return;  // it made a call a moment ago
    }
  }
  const bool do_all_wait = facts.unreported.size() == facts.live.size();
  if (facts.is_mismatched && !do_all_wait) return;
  Ranks behind = facts.owing;
  if (behind.empty()) behind = facts.behind;
  if (!behind.empty() && MayAllHaveLeft(facts, behind)) return;
  const bool is_any_behind = !behind.empty() || !facts.ended_owing.empty();
  if (!is_any_behind && !DoAllConnect(graph, facts)) return;  // the ranks may just be idle
  if (facts.is_mismatched && !waits.mismatch) waits.mismatch = CompareSides(facts);
  for (const Member& each : waits.members) {
    const RankView& rank = *each.rank;
    const bool is_victim = rank.state == RankView::State::kGone && IsInsideNccl(each) &&
                           !Contains(facts.ended_owing, &rank) &&
                           HasConnectedForLong(graph, i, each);
    if (!is_victim && !Contains(waiting, &rank)) continue;
    Actor& host = AddWait(graph, i, each, UnreportedSince(*facts.view, rank));
    // It may have left a Broadcast.
    const bool is_inside = WaitsForAll(rank.communicator->last_call_op);
    if (is_inside) host.state = ActorState::kInsideNccl;
    graph.Point(graph.Host(rank), graph.Call(i, each.called),
                is_inside ? Sure::kMust : Sure::kUnsure);
  }
}

// Each rank reports a new communicator to its profiler once all ranks have exchanged addresses. A
// rank that has reported it waits, while connecting, for the ranks that have not.
bool AddBeingMade(GraphBuilder& graph, std::size_t i) {
  const CommunicatorView& view = graph.view(i);
  ViewWaits& waits = graph.waits(i);
  const CommunicatorFacts& facts = waits.facts;
  if (facts.live.empty() || facts.live.size() != view.ranks.size()) return false;
  if (facts.are_all_seen() || !view.are_all_expected) return false;
  int64_t since_ns = 0;
  for (const RankView* rank : facts.live) {
    if (HasGoneOn(*rank)) return false;
    since_ns = std::max(since_ns, rank->communicator->init_realtime_ns);
  }
  if (!graph.IsHalf(i, since_ns)) return false;
  waits.absent = FindAbsent(graph, i);
  // The other ranks' endpoint may not be among the polled ones.
  if (waits.absent.empty() && view.nnodes != 1) return false;
  waits.is_being_made = true;
  for (const Member& each : waits.members) {
    AddWait(graph, i, each, since_ns).state = ActorState::kInsideNccl;
    const uint32_t id = graph.Host(*each.rank);
    if (waits.absent.empty()) graph.Point(id, graph.Unseen(i), Sure::kMust);
    for (const RankView* absent : waits.absent) {
      graph.Point(id, graph.Host(*absent), Sure::kMust);
    }
  }
  return true;
}

}  // namespace nccl_pulse
