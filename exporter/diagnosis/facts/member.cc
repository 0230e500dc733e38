#include "exporter/diagnosis/facts/member.h"

#include <algorithm>
#include <string>

namespace nccl_pulse {
namespace {

// Returns the rank's activity; if its process is stalled or in exit(), or its driver has failed, as
// of the background thread's last poll, since no later one is known.
RankActivity LastKnownActivity(const RankView& rank, int64_t now_ns) {
  const ProcessSnapshot& process = *rank.process;
  const UnknownReason reason = rank.activity.reason;
  const bool is_stalled = reason == UnknownReason::kPollerStalled;
  const bool is_exiting = reason == UnknownReason::kPollerEnded;
  if (!is_stalled && !is_exiting && reason != UnknownReason::kDriverError) return rank.activity;
  RankActivity last =
      ActivityAtLastPoll(process, *rank.communicator,
                         std::min(process.last_poll_realtime_ns, SeenUntil(process, now_ns)));
  // Work that was launched shortly before exit() may have completed since.
  if (is_exiting && rank.is_live_process() &&
      ElapsedNs(process.last_poll_realtime_ns, last.since_realtime_ns) < kWaitedNs) {
    return rank.activity;
  }
  // It runs again, and the next poll of its background thread will show whether its work has
  // completed.
  const bool has_resumed = is_stalled && rank.is_live_process() && !rank.is_stopped;
  return has_resumed && !last.is_idle() ? rank.activity : last;
}

// True if the communicator was aborted, by a watchdog for example, and the abort completed a launch
// that had been stalled for long.
bool WaitedUntilAbort(const RankView& rank) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  return communicator.finalized && communicator.last_launch_realtime_ns != 0 &&
         (SeenInFlightSince(communicator) != 0 ||
          ElapsedNs(communicator.last_completion_realtime_ns,
                    communicator.last_launch_realtime_ns) >= kWaitedNs);
}

// Returns the number of calls made after the oldest call in flight, by the ring of last calls.
std::optional<uint64_t> CallsBehindFront(const CallOrderSnapshot& order) {
  const uint32_t at = order.in_flight - order.first;
  if (order.in_flight == 0 || at >= order.calls.size()) return std::nullopt;
  return order.calls.size() - 1 - at;
}

void FindFront(const CommunicatorFacts& facts, bool counts_launches, Member* member) {
  const CommunicatorSnapshot& communicator = *member->rank->communicator;
  if (!member->is_in_flight() || member->called == 0) return;
  if (counts_launches) {
    member->front = communicator.launches_completed + 1;
    member->is_front_exact = true;
    return;
  }
  if (const std::optional<uint64_t> behind = CallsBehindFront(communicator.call_order)) {
    if (*behind < member->called) {
      member->front = member->called - *behind;
      member->is_front_exact = true;
      return;
    }
  }
  const bool is_last_collective = IsCollective(communicator.last_call_op);
  if (facts.view->has_point_to_point && !(is_last_collective && member->in_flight == 1)) return;
  // A group of several calls is one launch: at least as many calls as launches are in flight.
  const uint64_t behind = std::max<uint64_t>(member->in_flight, 1) - 1;
  member->front = member->called - std::min(behind, member->called - 1);
}

}  // namespace

int64_t ClockSlackNs(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  if (a.hostname == b.hostname) return kSameHostNs;
  if (a.clock_error_ns == 0 || b.clock_error_ns == 0) return kOtherHostNs;
  return std::min(kSameHostNs + a.clock_error_ns + b.clock_error_ns, kOtherHostNs);
}

Member MemberOf(const CommunicatorFacts& facts, const RankView& rank, bool counts_launches) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  const RankActivity activity = LastKnownActivity(rank, facts.now_ns);
  Member member;
  member.rank = &rank;
  member.gpu_use = communicator.work.gpu_use;
  member.launched_ns = SeenInFlightSince(communicator);
  member.called = counts_launches ? communicator.launches : facts.abandoned.TotalWithout(rank);
  member.in_flight =
      communicator.launches - std::min(communicator.launches, communicator.launches_completed);
  if (rank.state == RankView::State::kFinalized) {
    member.doing = WaitedUntilAbort(rank) ? Doing::kInside : Doing::kIdle;
    if (member.doing == Doing::kInside) {
      member.launched_ns = communicator.last_launch_realtime_ns;
      member.in_flight = 1;
    }
  } else if (activity.is_in_flight()) {
    member.is_begun = activity.oldest_launch == OldestLaunch::kBegun;
    member.doing =
        activity.oldest_launch == OldestLaunch::kNotBegun ? Doing::kNotBegun : Doing::kInside;
  } else if (activity.is_idle()) {
    member.doing = Doing::kIdle;
  } else if (activity.reason == UnknownReason::kLaunchNotReported) {
    member.doing = Doing::kUnreported;
  }
  if (member.is_in_flight()) {
    // An abort completes launches, which is no progress.
    const bool is_aborted = rank.state == RankView::State::kFinalized;
    member.since_ns =
        std::max({member.launched_ns, is_aborted ? 0 : communicator.last_completion_realtime_ns,
                  communicator.graph_moved_realtime_ns});
    if (member.is_live()) {
      member.since_ns = std::max(member.since_ns, facts.view->network_moved_realtime_ns);
    }
  } else if (member.doing == Doing::kUnreported) {
    member.since_ns = activity.since_realtime_ns;
  }
  FindFront(facts, counts_launches, &member);
  return member;
}

std::string OpOf(const Member& member, uint64_t number) {
  const CallOrderSnapshot& order = member.rank->communicator->call_order;
  if (number > member.called || member.called - number >= order.calls.size()) return "";
  const char call = order.calls[order.calls.size() - 1 - (member.called - number)];
  const std::size_t kind = static_cast<uint8_t>(call) & CallOrderSnapshot::kKind;
  return kind < order.kinds.size() ? order.kinds[kind].op : "";
}

std::string OpOfWait(const Member& member) {
  const PeersSnapshot& peers = member.rank->communicator->peers;
  if (peers.is_sending_to >= 0) return "Send";
  if (peers.is_receiving_from >= 0) return "Recv";
  if (member.in_flight > 1 && !peers.sends_to.empty() && !peers.receives_from.empty()) return "";
  const std::string op = member.is_front_exact ? OpOf(member, member.front) : "";
  return op.empty() ? member.rank->communicator->last_call_op : op;
}

bool IsAtFront(const Member& member) {
  return member.in_flight == 1 || member.rank->communicator->is_at_oldest ||
         member.rank->process->is_of_dump;
}

bool IsInsideNccl(const Member& member) {
  const CommunicatorSnapshot& communicator = *member.rank->communicator;
  return member.doing == Doing::kUnreported &&
         (communicator.are_unreported_in_group || IsLaunchAlwaysReported(communicator));
}

bool HadWaited(const Member& member, int64_t event_ns) {
  return (member.is_in_flight() || IsInsideNccl(member)) && member.since_ns != 0 &&
         ElapsedNs(event_ns, member.since_ns) >= kWaitedNs;
}

std::optional<LastEvent> LastEventOf(const RankView& rank) {
  std::optional<LastEvent> first;
  const auto add = [&first](LastEvent::Kind kind, int64_t at_ns) {
    if (!first || at_ns < first->at_ns) first = LastEvent{kind, at_ns};
  };
  const ProcessSnapshot& process = *rank.process;
  if (rank.failed != nullptr) {
    add(LastEvent::Kind::kFailed, rank.failed->driver_error_realtime_ns);
  }
  if (process.end != ProcessEnd::kLive) {
    // A process without a sign of life before its end, such as one that dumps core, had stopped.
    const int64_t ended_ns = SeenUntil(process, process.last_poll_realtime_ns);
    const int64_t seen_ns =
        std::max(process.last_poll_realtime_ns, rank.communicator->last_launch_realtime_ns);
    const bool had_stopped =
        process.last_poll_realtime_ns != 0 && ElapsedNs(ended_ns, seen_ns) >= kStoppedAfterNs;
    add(LastEvent::Kind::kGone, had_stopped ? seen_ns : ended_ns);
  } else if (rank.is_stopped) {
    add(LastEvent::Kind::kStopped, process.last_poll_realtime_ns);
  }
  return first;
}

}  // namespace nccl_pulse
