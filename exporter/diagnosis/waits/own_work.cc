#include "exporter/diagnosis/waits/own_work.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

bool IsUnseen(const RankView& rank) {
  return rank.activity.is_unknown() || rank.activity.is_quiet();
}

// True if two ranks have the same position in the program: in one communicator, or in two with Send
// and Recv in which they have the same rank.
bool AreAtOnePosition(const CommunicatorView& a, const RankView& rank_a, const CommunicatorView& b,
                      const RankView& rank_b) {
  const bool are_places_alike =
      a.has_point_to_point
          ? b.has_point_to_point && a.nranks == b.nranks && rank_a.rank() == rank_b.rank()
          : &a == &b;
  const CommunicatorSnapshot& one = *rank_a.communicator;
  const CommunicatorSnapshot& other = *rank_b.communicator;
  return are_places_alike && one.launches_completed == other.launches_completed &&
         one.last_call_op == other.last_call_op;
}

// True if the GPU executes, or waits in, a launch that may precede the launch of `later`; or if
// that launch was made earlier and has not begun either.
bool IsBusyBefore(const Member& each, const Member& later) {
  const bool is_begun_unknown = each.doing == Doing::kInside && !each.is_begun;
  return is_begun_unknown || each.launched_ns < later.launched_ns;
}

// True if the host may wait for this work: it has been in flight for long enough.
bool IsFollowed(const GraphBuilder& graph, const MemberIndex& at) {
  const Member& each = graph.member(at);
  return !each.is_live() ||
         graph.IsHalf(at.view, each.launched_ns != 0 ? each.launched_ns : each.since_ns);
}

}  // namespace

bool HasGoneOnSinceAbort(const HostThread& thread, const Member& aborted) {
  constexpr int64_t kSeenAfterNs = 1000000000;  // the abort has completed all work in flight
  if (aborted.rank->state != RankView::State::kFinalized) return false;
  return ElapsedNs(aborted.rank->communicator->last_completion_realtime_ns, thread.last_live_ns) <
         kSeenAfterNs;
}

OwnWork::OwnWork(GraphBuilder& graph) : graph_(graph), jobs_(graph.views()) {
  for (const HostThread& thread : graph.threads()) {
    const RankView& rank = *graph.actor(thread.host).rank;
    if (rank.process->is_from_outside && thread.busy.empty() &&
        rank.state != RankView::State::kFinalized) {
      const std::size_t job = jobs_.OfProcess(rank.process);
      ++without_work_[job];
      if (graph.member(thread.members.front()).gpu_use == GpuUse::kMixed) computing_.insert(job);
    }
    for (const MemberIndex& at : thread.busy) {
      const Member& each = graph.member(at);
      if (each.doing == Doing::kNotBegun && each.is_live() && !IsBehindNccl(each)) {
        behind_kernels_[jobs_.OfView(at.view)].insert(rank.process);
      }
    }
    for (const MemberIndex& at : thread.members) {
      const Member& each = graph.member(at);
      if (each.rank->state != RankView::State::kGone) continue;
      if (!each.is_in_flight() && HasDoneItsPart(thread)) continue;
      const auto [first, is_new] =
          first_ended_.try_emplace({jobs_.OfView(at.view), rank.process->hostname}, at);
      if (is_new) continue;
      const int64_t first_ns = LastEventOf(*graph.member(first->second).rank)->at_ns;
      if (LastEventOf(*each.rank)->at_ns < first_ns) first->second = at;
    }
  }
}

bool OwnWork::HasDoneItsPart(const HostThread& thread) {
  return std::any_of(thread.members.begin(), thread.members.end(), [this](const MemberIndex& at) {
    const Member& each = graph_.member(at);
    if (graph_.view(at.view).has_point_to_point) return false;
    const auto [least, is_new] = least_waiting_.try_emplace(at.view, UINT64_MAX);
    if (is_new) {
      for (const Member& other : graph_.waits(at.view).members) {
        if (other.is_live() && other.is_in_flight() && graph_.IsHalf(at.view, other.since_ns)) {
          least->second = std::min(least->second, other.called);
        }
      }
    }
    return least->second <= each.called;
  });
}

void OwnWork::AddUnawaitedEvent(const HostThread& thread) {
  if (thread.event != kNoActor) return;
  std::optional<MemberIndex> shared;  // with live ranks
  bool had_waited = false;
  for (const MemberIndex& at : thread.members) {
    const Member& each = graph_.member(at);
    const std::optional<LastEvent> event = LastEventOf(*each.rank);
    if (!event) return;
    had_waited |= HadWaited(each, event->at_ns) || (IsInDriver(*each.rank) && each.is_in_flight());
    const ViewWaits& waits = graph_.waits(at.view);
    const bool is_left = each.rank->state == RankView::State::kFinalized || waits.is_left;
    if (!is_left && waits.facts.live.size() > (each.is_live() ? 1 : 0)) shared = at;
  }
  if (!shared) return;
  const RankView& rank = *graph_.member(*shared).rank;
  const LastEvent event = *LastEventOf(rank);
  const bool is_cause = !had_waited && !HasDoneItsPart(thread);
  if (!is_cause && event.kind != LastEvent::Kind::kFailed) return;
  const uint32_t id = graph_.Event(rank, event, INT64_MAX);
  if (is_cause) graph_.actor(id).view = shared->view;
}

bool OwnWork::MayWaitUncounted(const HostThread& thread) {
  const Member& each = graph_.member(thread.members.front());
  if (!each.rank->process->is_from_outside || each.gpu_use == GpuUse::kMixed) return false;
  const std::size_t job = jobs_.OfProcess(each.rank->process);
  if (each.gpu_use == GpuUse::kIdle) return computing_.count(job) != 0;
  const std::size_t own = thread.busy.empty() ? 1 : 0;
  return without_work_[job] > own;
}

// True if ranks may make this call at different points of their programs: a Recv is posted ahead of
// its Send, and a Broadcast ahead of its root's. A Broadcast that another rank is beyond has begun
// at its root.
bool OwnWork::MayBePostedAhead(const MemberIndex& at) {
  const Member& each = graph_.member(at);
  if (graph_.view(at.view).has_point_to_point) return true;
  if (WaitsForAll(each.rank->communicator->last_call_op)) return false;
  const std::vector<Member>& members = graph_.waits(at.view).members;
  return std::none_of(members.begin(), members.end(), [&each](const Member& other) {
    return other.is_live() && other.called > each.called;
  });
}

bool OwnWork::IsBehindNccl(const Member& each) {
  const std::vector<MemberIndex>& busy = graph_.ThreadOf(*each.rank).busy;
  return std::any_of(busy.begin(), busy.end(), [&](const MemberIndex& other) {
    return graph_.member(other).rank != each.rank && IsBusyBefore(graph_.member(other), each);
  });
}

void OwnWork::AddBehind(std::size_t i, std::size_t at) {
  ViewWaits& waits = graph_.waits(i);
  const Member& each = waits.members[at];
  const uint32_t gpu = waits.gpus[at];
  const HostThread& thread = graph_.ThreadOf(*each.rank);
  // Its GPU has recently completed some earlier work.
  if (thread.first_moving_ns <= each.launched_ns) {
    graph_.actor(gpu).state = ActorState::kMoving;
    graph_.actor(gpu).is_start = false;
    return;
  }
  for (const MemberIndex& other_at : thread.busy) {
    const Member& other = graph_.member(other_at);
    if (other.rank == each.rank || !IsBusyBefore(other, each)) continue;
    if (HaveOthersGoneOn(i, other_at, false) || HasGoneOnSinceAbort(thread, other)) continue;
    graph_.Point(gpu, graph_.waits(other_at.view).gpus[other_at.at],
                 MayBePostedAhead(other_at) ? Sure::kPosted : Sure::kMay);
  }
  if (!graph_.actor(gpu).arrows.empty()) return;
  for (const MemberIndex& other_at : thread.unseen) {
    graph_.Point(gpu, graph_.Unknown(other_at.view), Sure::kMay);
  }
  if (!graph_.actor(gpu).arrows.empty()) return;
  for (const MemberIndex& queued : thread.busy) {
    if (graph_.member(queued).doing == Doing::kNotBegun) AddAwaitedByKernel(gpu, queued);
  }
}

// Adds arrows for a kernel of the application in front of `gpu`, which may itself wait for other
// ranks: for the few that have not called the work queued behind the kernel, or for unseen ranks if
// other ranks wait for that work. Such kernels wait for each other, so a single one in a job is
// just stuck.
void OwnWork::AddAwaitedByKernel(uint32_t gpu, const MemberIndex& queued) {
  if (behind_kernels_[jobs_.OfView(queued.view)].size() < 2) return;
  const ViewWaits& waits = graph_.waits(queued.view);
  const CommunicatorFacts& facts = waits.facts;
  if (facts.calls_known != CallsKnown::kYes) return;
  if (graph_.view(queued.view).has_point_to_point && !graph_.counts_launches(queued.view) &&
      !IsOwedProven(facts)) {
    return;
  }
  const uint64_t number = FrontOf(graph_.member(queued));
  Ranks owing;
  std::size_t waiting = 0;
  bool is_awaited = false;
  for (const Member& each : waits.members) {
    if (each.doing == Doing::kNotBegun) ++waiting;
    is_awaited |= each.doing == Doing::kInside && each.is_live();
    const bool has_left = each.rank->state == RankView::State::kFinalized;
    if (each.doing == Doing::kIdle && !has_left && each.called < number) {
      owing.push_back(each.rank);
    }
  }
  const uint32_t there = waits.gpus[queued.at];
  const auto unseen = static_cast<std::size_t>(facts.view->nranks) - waits.members.size();
  if (owing.empty() && is_awaited && unseen != 0 && unseen < waiting &&
      facts.view->are_all_expected) {
    graph_.Point(gpu, there, Sure::kMay);
    return graph_.Point(there, graph_.Unseen(queued.view), Sure::kMay);
  }
  if (owing.size() >= waiting) return;
  const int64_t since_ns = graph_.actor(gpu).since_ns;
  for (const RankView* rank : owing) {
    if (rank->process == graph_.member(queued).rank->process) continue;
    graph_.Point(gpu, there, Sure::kMay);
    if (graph_.PointToCause(there, *rank, since_ns, Sure::kMay)) continue;
    graph_.Point(there, graph_.Host(*rank), Sure::kMay);
  }
}

void OwnWork::AddFirstEnded(const HostThread& thread) {
  const RankView& rank = *graph_.actor(thread.event).rank;
  const auto found = first_ended_.find({jobs_.OfProcess(rank.process), rank.process->hostname});
  if (graph_.actor(thread.event).state != ActorState::kGone || found == first_ended_.end()) return;
  const RankView& rank_first = *graph_.member(found->second).rank;
  const LastEvent first = *LastEventOf(rank_first);
  const int64_t later_ns = ElapsedNs(graph_.actor(thread.event).since_ns, first.at_ns);
  if (later_ns <= kSameHostNs || later_ns > kCauseSlackNs) return;
  if (ElapsedNs(first.at_ns, thread.awaited_ns) > kWaitedNs) return;  // it owed a call before that
  const HostThread& of_first = graph_.ThreadOf(rank_first);
  const bool is_new = of_first.event == kNoActor;
  graph_.Point(thread.event, graph_.Event(rank_first, first, thread.awaited_ns), Sure::kMay);
  if (!is_new) return;
  graph_.actor(of_first.event).view = found->second.view;  // no rank waits for it in NCCL
  AddBeforeEvent(of_first);
}

bool OwnWork::WaitsForOther(uint32_t gpu) {
  if (!waits_for_other_.empty()) return waits_for_other_[gpu];
  const std::vector<Actor>& actors = graph_.actors();
  std::vector<std::vector<uint32_t>> before(actors.size());
  std::vector<uint32_t> next;
  waits_for_other_.resize(actors.size());
  for (uint32_t i = 0; i < actors.size(); ++i) {
    for (const Arrow& arrow : actors[i].arrows) before[arrow.to].push_back(i);
    const bool is_held_up = actors[i].state == ActorState::kStopped && IsInDriver(*actors[i].rank);
    if (!actors[i].arrows.empty() || actors[i].state == ActorState::kInside ||
        actors[i].state == ActorState::kUnseen || is_held_up) {
      continue;
    }
    waits_for_other_[i] = true;
    next.push_back(i);
  }
  for (std::size_t at = 0; at < next.size(); ++at) {
    for (const uint32_t from : before[next[at]]) {
      if (!waits_for_other_[from]) next.push_back(from);
      waits_for_other_[from] = true;
    }
  }
  return waits_for_other_[gpu];
}

void OwnWork::AddBeforeEvent(const HostThread& thread) {
  if (thread.event == kNoActor || graph_.actor(thread.event).state == ActorState::kFailed) return;
  AddFirstEnded(thread);
  for (const MemberIndex& at : thread.busy) {
    const Member& each = graph_.member(at);
    const uint32_t gpu = graph_.waits(at.view).gpus[at.at];
    const bool is_victim = HadWaited(each, graph_.actor(thread.event).since_ns)
                               ? !graph_.actor(gpu).arrows.empty()
                               : IsInDriver(*each.rank) && WaitsForOther(gpu);
    if (is_victim) graph_.Point(thread.event, gpu, Sure::kMay);
  }
  const Actor& host = graph_.actor(thread.host);
  if (host.state == ActorState::kInsideNccl && !host.arrows.empty() &&
      ElapsedNs(graph_.actor(thread.event).since_ns, host.since_ns) >= kWaitedNs) {
    graph_.Point(thread.event, thread.host, Sure::kMay);
  }
}

void OwnWork::AddOfHost(const HostThread& thread) {
  for (const MemberIndex& each_at : thread.busy) {
    const Member& each = graph_.member(each_at);
    const uint32_t gpu = graph_.waits(each_at.view).gpus[each_at.at];
    if (!IsFollowed(graph_, each_at) || HasGoneOnSinceAbort(thread, each)) continue;
    // In a replay of a graph with several communicators, the rank is behind in each of them.
    if (Contains(graph_.waits(each_at.view).facts.replays.behind, each.rank)) continue;
    const bool have_gone_on =
        std::any_of(thread.owes_in.begin(), thread.owes_in.end(),
                    [&](std::size_t here) { return HaveOthersGoneOn(here, each_at, true); });
    if (have_gone_on) {
      graph_.actor(thread.host).unlikely.push_back(gpu);
      continue;
    }
    graph_.Point(thread.host, gpu, MayBePostedAhead(each_at) ? Sure::kPosted : Sure::kMay);
  }
  const ActorState state = graph_.actor(thread.host).state;
  const std::vector<Arrow>& arrows = graph_.actor(thread.host).arrows;
  const bool is_in_call = std::any_of(arrows.begin(), arrows.end(), [this](const Arrow& arrow) {
    return graph_.actor(arrow.to).kind == ActorKind::kCall;
  });
  if (!thread.owes_in.empty() && MayWaitUncounted(thread)) {
    graph_.Point(thread.host, graph_.Unknown(thread.owes_in.front()), Sure::kMay);
  }
  if (!thread.owes_in.empty() && !is_in_call && state != ActorState::kInsideNccl)
    AddUnseenWork(thread);
  if (state == ActorState::kBehindReplay) AddUnseenReplays(thread);
}

bool OwnWork::HaveOthersGoneOn(std::size_t here, const MemberIndex& work, bool is_called) {
  const Member& own = graph_.member(work);
  const CommunicatorView& view = graph_.view(work.view);
  const auto [known, is_new] = have_gone_on_.try_emplace(
      {here,
       view.has_point_to_point ? graph_.views().size() + static_cast<std::size_t>(view.nranks)
                               : work.view,
       view.has_point_to_point ? own.rank->rank() : 0, own.rank->communicator->launches_completed,
       own.rank->communicator->last_call_op, is_called},
      false);
  if (is_new) known->second = FindOthersGoneOn(here, work, is_called);
  return known->second;
}

bool OwnWork::FindOthersGoneOn(std::size_t here, const MemberIndex& work, bool is_called) {
  const Member& own = graph_.member(work);
  for (const Member& waits : graph_.waits(here).members) {
    if (!waits.is_in_flight() || !waits.is_live()) continue;
    const int64_t came = is_called        ? waits.rank->communicator->last_launch_realtime_ns
                         : waits.is_begun ? waits.launched_ns
                                          : 0;
    for (const MemberIndex& other_at : graph_.ThreadOf(*waits.rank).busy) {
      const Member& other = graph_.member(other_at);
      if (other.launched_ns != 0 && came > other.launched_ns &&
          AreAtOnePosition(graph_.view(other_at.view), *other.rank, graph_.view(work.view),
                           *own.rank)) {
        return true;
      }
    }
  }
  return false;
}

// Adds arrows to possible unseen work: replays on a communicator whose graphs are not followed.
void OwnWork::AddUnseenReplays(const HostThread& thread) {
  for (const MemberIndex& each_at : thread.members) {
    const RankView& rank = *graph_.member(each_at).rank;
    const GraphPosition& graphs = rank.communicator->graph_position;
    const bool are_followed = graphs.captures != 0 && graphs.captures == graphs.followed;
    const bool is_unseen = graph_.member(each_at).is_live() && IsUnseen(rank) && !are_followed;
    if (is_unseen) graph_.Point(thread.host, graph_.Unknown(each_at.view), Sure::kMay);
  }
}

// Adds arrows to possible unseen work: calls in other communicators whose launch NCCL does not
// report.
void OwnWork::AddUnseenWork(const HostThread& thread) {
  for (const MemberIndex& each_at : thread.unseen) {
    const Member& each = graph_.member(each_at);
    if (each.doing != Doing::kUnreported || !graph_.IsLong(each_at.view, each.since_ns)) continue;
    for (const MemberIndex& owed : thread.members) {
      const bool is_owed = std::count(thread.owes_in.begin(), thread.owes_in.end(), owed.view) != 0;
      const int64_t launched_ns = graph_.member(owed).rank->communicator->last_launch_realtime_ns;
      if (owed.view != each_at.view && is_owed &&
          ElapsedNs(launched_ns, each.since_ns) < graph_.view(owed.view).hang_after_ns) {
        graph_.Point(thread.host, graph_.Unknown(each_at.view), Sure::kMay);
      }
    }
  }
}

}  // namespace nccl_pulse
