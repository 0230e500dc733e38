#include "exporter/diagnosis/waits/graph_builder.h"

#include <algorithm>
#include <map>
#include <utility>

namespace nccl_pulse {

GraphBuilder::GraphBuilder(const std::vector<CommunicatorView>& views, int64_t now_ns)
    : views_(views),
      now_ns_(now_ns),
      calls_(views.size()),
      unseen_(views.size(), kNoActor),
      unknown_(views.size(), kNoActor) {
  waits_.views.reserve(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) AddActors(i);
  for (HostThread& thread : threads_) SumUp(&thread);
}

std::size_t GraphBuilder::AddThread(const RankView& rank) {
  const CommunicatorSnapshot& of = *rank.communicator;
  // Communicators on unknown GPUs are assumed to be on the same one.
  const std::string_view gpu = of.uuid.empty() ? of.gpu : of.uuid;
  const std::tuple key(rank.process, gpu, rank.thread);
  const auto [found, is_new] = threads_by_gpu_.try_emplace(key, threads_.size());
  if (is_new) {
    threads_of_[rank.process].push_back(threads_.size());
    HostThread& thread = threads_.emplace_back();
    thread.host =
        Add({ActorKind::kHost, IsExiting(rank) ? ActorState::kExiting : ActorState::kOutside,
             IsExiting(rank) ? rank.process->last_poll_realtime_ns : 0, kNoView, &rank});
  }
  thread_of_[&rank] = found->second;
  return found->second;
}

// Computes facts over all members once, so that the rules stay linear in the number of
// communicators.
void GraphBuilder::SumUp(HostThread* thread) {
  int64_t last_call_ns = 0;
  for (const MemberIndex& at : thread->members) {
    const Member& each = member(at);
    const CommunicatorSnapshot& communicator = *each.rank->communicator;
    last_call_ns = std::max(
        {last_call_ns, communicator.last_launch_realtime_ns, communicator.init_realtime_ns});
    if (each.is_in_flight()) thread->busy.push_back(at);
    if (each.is_in_flight() && !each.is_live()) {
      const bool is_gone = each.rank->state == RankView::State::kGone;
      const int64_t ended_ns = is_gone ? SeenUntil(*each.rank->process, now_ns_)
                                       : communicator.last_completion_realtime_ns;
      thread->ended_wait_ns = std::max(thread->ended_wait_ns, ended_ns);
    }
    if (!each.is_live()) continue;
    thread->last_live_ns = std::max({thread->last_live_ns, communicator.last_launch_realtime_ns,
                                     communicator.init_realtime_ns});
    // A rank that is behind in replays waits in no replay.
    const bool is_unseen = (each.doing == Doing::kUnknown || each.doing == Doing::kUnreported ||
                            each.rank->activity.is_quiet()) &&
                           !Contains(waits_.views[at.view].facts.replays.behind, each.rank);
    if (is_unseen && thread->unseen.size() < kMostFollowed) thread->unseen.push_back(at);
    const int64_t completed_ns = communicator.last_completion_realtime_ns;
    thread->completed_ns = std::max(thread->completed_ns, completed_ns);
    if (communicator.has_heartbeat && completed_ns != 0 &&
        ElapsedNs(now_ns_, completed_ns) < views_[at.view].hang_after_ns) {
      thread->first_moving_ns =
          std::min(thread->first_moving_ns,
                   each.launched_ns != 0 ? each.launched_ns : communicator.last_launch_realtime_ns);
    }
  }
  if (actor(thread->host).state == ActorState::kOutside) {
    actor(thread->host).since_ns = last_call_ns;
  }
  std::stable_sort(thread->busy.begin(), thread->busy.end(), [this](const auto& a, const auto& b) {
    return member(a).launched_ns < member(b).launched_ns;
  });
  if (thread->busy.size() > kMostFollowed) {
    for (auto at = thread->busy.begin() + kMostFollowed; at != thread->busy.end(); ++at) {
      waits_.views[at->view].is_beyond_limit = true;
    }
    thread->busy.resize(kMostFollowed);
  }
  std::sort(thread->busy.begin(), thread->busy.end(), [](const auto& a, const auto& b) {
    return std::tie(a.view, a.at) < std::tie(b.view, b.at);
  });
}

void GraphBuilder::Owe(const RankView& rank, std::size_t view) {
  std::vector<std::size_t>& owes_in = ThreadOf(rank).owes_in;
  const bool is_known = std::find(owes_in.begin(), owes_in.end(), view) != owes_in.end();
  if (!is_known && owes_in.size() < kMostFollowed) owes_in.push_back(view);
}

void GraphBuilder::AddActors(std::size_t i) {
  const CommunicatorView& view = views_[i];
  ViewWaits& waits = waits_.views.emplace_back();
  waits.facts = GatherFacts(view, now_ns_);
  const bool counts_launches = view.has_point_to_point && AreLaunchesExchanges(view);
  for (const RankView& rank : view.ranks) {
    const std::size_t thread = AddThread(rank);
    threads_[thread].members.push_back({i, waits.members.size()});
    waits.members.push_back(MemberOf(waits.facts, rank, counts_launches));
    const Member& each = waits.members.back();
    const bool is_outside =
        each.doing == Doing::kIdle || each.doing == Doing::kNotBegun || IsExiting(rank);
    if (each.is_live() && is_outside) waits.outside.push_back(waits.members.size() - 1);
    waits.gpus.push_back(AddGpu(i, each));
  }
  counts_launches_.push_back(counts_launches);
}

uint32_t GraphBuilder::AddGpu(std::size_t view, const Member& each) {
  if (!each.is_in_flight()) return kNoActor;
  Actor gpu{ActorKind::kGpu, ActorState::kInside, each.since_ns, view, each.rank};
  const bool is_not_begun = each.doing == Doing::kNotBegun;
  if (is_not_begun) gpu.state = ActorState::kBehindOwn;
  if (each.is_live()) {
    if (!IsHalf(view, each.since_ns)) gpu.state = ActorState::kMoving;
    // Dumps are written during a hang, and have no times.
    const bool is_queued = is_not_begun && !each.rank->process->is_of_dump;
    gpu.is_start = is_queued
                       ? Age(each.since_ns) >=
                             std::max(kQueuedFactor * views_[view].hang_after_ns, kLeastQueuedNs)
                       : IsLong(view, each.since_ns);
    gpu.is_queued_start = is_queued && gpu.is_start;
  }
  return Add(std::move(gpu));
}

uint32_t GraphBuilder::Event(const RankView& rank, const LastEvent& event, int64_t wait_began_ns) {
  HostThread& thread = ThreadOf(rank);
  thread.awaited_ns = std::min(thread.awaited_ns, wait_began_ns);
  if (thread.event == kNoActor) {
    const ActorState state = event.kind == LastEvent::Kind::kFailed ? ActorState::kFailed
                             : event.kind == LastEvent::Kind::kGone ? ActorState::kGone
                                                                    : ActorState::kStopped;
    thread.event = Add({ActorKind::kEvent, state, event.at_ns, kNoView, &rank});
  }
  return thread.event;
}

bool GraphBuilder::PointToCause(uint32_t from, const RankView& rank, int64_t wait_began_ns,
                                Sure sure) {
  const std::optional<LastEvent> cause = CauseOf(rank, wait_began_ns);
  if (cause) Point(from, Event(rank, *cause, wait_began_ns), sure);
  return cause.has_value();
}

uint32_t GraphBuilder::Left(std::size_t view, const RankView& rank) {
  const auto [found, is_new] = left_.try_emplace(&rank, 0);
  if (is_new) {
    found->second = Add({ActorKind::kLeft, ActorState::kLeft, 0, view, &rank});
  }
  return found->second;
}

uint32_t GraphBuilder::OfView(std::size_t view, ActorKind kind, ActorState state,
                              std::vector<uint32_t>* made) {
  uint32_t& id = (*made)[view];
  if (id == kNoActor) id = Add({kind, state, 0, view, nullptr});
  return id;
}

uint32_t GraphBuilder::Call(std::size_t view, uint64_t number) {
  const auto [found, is_new] = calls_[view].try_emplace(number, 0);
  if (is_new) {
    found->second = Add({ActorKind::kCall, ActorState::kInside, 0, view, nullptr, number});
  }
  return found->second;
}

void GraphBuilder::TakeForBegun(uint32_t gpu, const Member& each) {
  actor(gpu).state = ActorState::kInside;
  actor(gpu).is_start = each.is_live() && IsLong(actor(gpu).view, each.since_ns);
  actor(gpu).is_queued_start = false;
}

bool GraphBuilder::DoAllSeenWait(std::size_t i) const {
  const ViewWaits& waits = waits_.views[i];
  return views_[i].are_all_expected && !waits.facts.are_all_seen() &&
         std::all_of(waits.members.begin(), waits.members.end(), [this, i](const Member& each) {
           return (each.is_in_flight() || IsInsideNccl(each)) && IsHalf(i, each.since_ns);
         });
}

std::optional<LastEvent> CauseOf(const RankView& rank, int64_t wait_began_ns) {
  if (rank.state == RankView::State::kFinalized) return std::nullopt;
  std::optional<LastEvent> event = LastEventOf(rank);
  if (event && ElapsedNs(event->at_ns, wait_began_ns) >= kCauseSlackNs) event.reset();
  return event;
}

}  // namespace nccl_pulse
