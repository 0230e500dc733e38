#include <algorithm>

#include "exporter/diagnosis/facts/communicator_facts.h"

namespace nccl_pulse {
namespace {

// True if a stall of the counter would be known.
bool IsFollowed(WorkState state) {
  return state == WorkState::kProven || state == WorkState::kCalibrating;
}

// True if no counter is available: none was found, or it was refuted.
bool IsUncounted(const WorkSnapshot& work) {
  return work.state == WorkState::kUnknown || work.state == WorkState::kLocated ||
         work.state == WorkState::kRefuted ||
         (work.state == WorkState::kCalibrating && work.moved_realtime_ns == 0);
}

// True if the process runs, and the plugin's reading thread is stuck in the driver.
bool IsUnread(const RankView& rank) {
  const WorkState state = rank.communicator->work.state;
  return state == WorkState::kStuck || (IsFollowed(state) && IsInDriver(rank)) ||
         (IsUncounted(rank.communicator->work) && !rank.is_stopped);
}

}  // namespace

bool MayLeaveReplays(const CommunicatorSnapshot& communicator) {
  return std::any_of(
      communicator.calls.begin(), communicator.calls.end(),
      [](const CallCountSnapshot& call) { return call.captured && !WaitsForAll(call.op); });
}

WorkFacts CompareWork(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_ns) {
  WorkFacts facts;
  if (view.is_mixed || static_cast<int32_t>(view.ranks.size()) != view.nranks) return {};
  int64_t shortest_ns = INT64_MAX;
  bool may_leave = false;
  bool are_pauses_known = true;
  for (const RankView& rank : view.ranks) {
    const WorkSnapshot& work = rank.communicator->work;
    const bool is_unread = IsUnread(rank);
    const bool is_uncounted = IsUncounted(work);
    const bool is_seen =
        rank.state == RankView::State::kLive && rank.failed == nullptr &&
        rank.communicator->captured &&
        (is_unread || (IsFollowed(work.state) && !rank.is_stopped && work.moved_realtime_ns != 0));
    if (!is_seen) return {};
    are_pauses_known &= work.state != WorkState::kCalibrating && !is_uncounted;
    if (is_unread) {
      // An idle GPU finishes nothing, with or without a counter.
      if (work.gpu_use != GpuUse::kBusy && !is_uncounted) return {};
      facts.unread.push_back(&rank);
      may_leave |= MayLeaveReplays(*rank.communicator);
    }
    if (work.moved_realtime_ns != 0 && !is_uncounted) {
      const int64_t stood_ns = ElapsedNs(now_ns, work.moved_realtime_ns);
      if (stood_ns < hang_after_ns) return {};
      shortest_ns = std::min(shortest_ns, stood_ns);
      facts.since_ns = std::max(facts.since_ns, work.moved_realtime_ns);
    }
    facts.longest_pause_ns = std::max(facts.longest_pause_ns, work.longest_pause_ns);
    switch (work.gpu_use) {
      case GpuUse::kBusy:
        facts.busy.push_back(&rank);
        break;
      case GpuUse::kIdle:
        facts.idle.push_back(&rank);
        break;
      default:
        return {};
    }
  }
  if (facts.busy.empty()) return {};
  if (facts.since_ns == 0) facts.since_ns = now_ns - hang_after_ns;  // NVML's oldest sample
  const bool is_unusual = are_pauses_known && static_cast<double>(shortest_ns) >
                                                  static_cast<double>(facts.longest_pause_ns);
  return (facts.idle.empty() ? is_unusual : !may_leave) ? facts : WorkFacts{};
}

}  // namespace nccl_pulse
