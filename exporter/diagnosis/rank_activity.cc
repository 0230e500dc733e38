#include "exporter/diagnosis/rank_activity.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

// Bits of NCCL's profiler event mask (nccl/profiler.h, ncclProfile*). All exist since v5, the last
// one since v6.
constexpr uint32_t kCallEvents = 1u << 9 | 1u << 10;     // CollApi, P2pApi
constexpr uint32_t kLaunchEvents = 1u << 11 | 1u << 12;  // KernelLaunch, CeColl

// The counter of finished work is read ten times a second.
constexpr int64_t kQuietAfterNs = 2000000000;

// A launch this young may be one that the background thread did not see before it stopped.
constexpr int64_t kLaunchSlackNs = 1000000000;

bool PollerStands(const ProcessSnapshot& process, int64_t now_ns, int64_t stands_after_ns) {
  const int64_t polled = process.last_poll_realtime_ns;
  if (polled == 0) return process.poller == PollerState::kRunning;  // it has never polled
  return ElapsedNs(SeenUntil(process, now_ns), polled) >= stands_after_ns;
}

// Whether NCCL was asked for some of the events `wanted` and no longer reports them.
bool LostEvents(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                uint32_t wanted) {
  return process.event_mask_changes != 0 &&
         (communicator.event_mask & wanted & ~process.foreign_event_mask) != 0;
}

RankActivity Unknown(UnknownReason reason, int64_t since_ns = 0) {
  return {ActivityState::kUnknown, reason, since_ns, OldestLaunch::kUnknown, false};
}

}  // namespace

const char* UnknownReasonName(UnknownReason reason) {
  switch (reason) {
    case UnknownReason::kPollerNotStarted:
      return "poller_not_started";
    case UnknownReason::kPollerStands:
      return "poller_stands";
    case UnknownReason::kNoCompletions:
      return "no_completions";
    case UnknownReason::kEventMaskChanged:
      return "event_mask_changed";
    case UnknownReason::kCaptured:
      return "captured";
    case UnknownReason::kLaunchNotReported:
      return "launch_not_reported";
    case UnknownReason::kPollerEnded:
      return "poller_ended";
    case UnknownReason::kDriverError:
      return "driver_error";
    case UnknownReason::kNone:
      break;
  }
  return "none";
}

RankActivity ActivityOf(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                        int64_t now_realtime_ns, int64_t stands_after_ns) {
  if (process.poller == PollerState::kNotStarted) return Unknown(UnknownReason::kPollerNotStarted);
  if (process.poller == PollerState::kEnded) {
    return Unknown(UnknownReason::kPollerEnded, process.last_poll_realtime_ns);
  }
  if (PollerStands(process, now_realtime_ns, stands_after_ns)) {
    return Unknown(UnknownReason::kPollerStands, process.last_poll_realtime_ns);
  }
  if (communicator.driver_error != 0) {
    return Unknown(UnknownReason::kDriverError, communicator.driver_error_realtime_ns);
  }
  const bool is_in_replay = communicator.graph_replays_in_flight != 0;
  if (const int64_t since = SeenInFlightSince(communicator); since != 0 || is_in_replay) {
    // A launch that has not begun may stand behind the replay.
    const bool is_told = communicator.has_heartbeat && !is_in_replay;
    return {ActivityState::kInFlight, UnknownReason::kNone,
            since != 0 ? since : communicator.graph_moved_realtime_ns,
            is_told ? communicator.oldest_launch : OldestLaunch::kUnknown, is_in_replay};
  }
  if (!communicator.has_heartbeat) return Unknown(UnknownReason::kNoCompletions);
  // Of several changes only the last is known. An earlier one may have hidden what still runs.
  if (process.event_mask_changes > 1 ||
      LostEvents(process, communicator, kCallEvents | kLaunchEvents)) {
    return Unknown(UnknownReason::kEventMaskChanged);
  }
  if (communicator.captured) {
    if (communicator.work.state != WorkState::kProven) return Unknown(UnknownReason::kCaptured);
    const int64_t moved = communicator.work.moved_realtime_ns;
    const bool is_quiet = ElapsedNs(now_realtime_ns, moved) >= kQuietAfterNs;
    return {is_quiet ? ActivityState::kQuiet : ActivityState::kReplaying, UnknownReason::kNone,
            is_quiet ? moved : 0, OldestLaunch::kUnknown, false};
  }
  // Launches of a communicator run in order (NCCL's ncclLaunchPrepare). So a launch that was
  // reported and has completed proves that those before it have; only calls after the last one
  // count here.
  if (communicator.unreported_calls != 0) {
    return Unknown(UnknownReason::kLaunchNotReported, communicator.unreported_since_realtime_ns);
  }
  return {ActivityState::kIdle, UnknownReason::kNone, 0, OldestLaunch::kUnknown, false};
}

int64_t SeenUntil(const ProcessSnapshot& process, int64_t now_realtime_ns) {
  if (process.end == ProcessEnd::kLive) return now_realtime_ns;
  return process.end_realtime_ns != 0 ? process.end_realtime_ns : process.last_poll_realtime_ns;
}

int64_t SeenInFlightSince(const CommunicatorSnapshot& communicator) {
  if (!communicator.has_heartbeat) {
    return communicator.operations_source == CompletionSource::kNone
               ? 0
               : communicator.oldest_operation_realtime_ns;
  }
  // The two were not read at the same moment: launches are counted at once, completions at the last
  // look.
  if (communicator.launches <= communicator.launches_completed) return 0;
  return communicator.oldest_inflight_realtime_ns != 0 ? communicator.oldest_inflight_realtime_ns
                                                       : communicator.last_launch_realtime_ns;
}

bool IsStopped(const ProcessSnapshot& process, int64_t now_realtime_ns, int64_t stands_after_ns) {
  return process.run_state != RunState::kRunning &&
         process.run_state != RunState::kUninterruptible &&
         Stands(process, now_realtime_ns, stands_after_ns);
}

bool Stands(const ProcessSnapshot& process, int64_t now_realtime_ns, int64_t stands_after_ns) {
  const int64_t polled = process.last_poll_realtime_ns;
  return process.end == ProcessEnd::kLive && process.poller != PollerState::kNotStarted &&
         process.poller != PollerState::kEnded && polled != 0 &&
         PollerStands(process, now_realtime_ns, stands_after_ns) &&
         std::none_of(process.communicators.begin(), process.communicators.end(),
                      [polled](const CommunicatorSnapshot& communicator) {
                        return ElapsedNs(communicator.last_launch_realtime_ns, polled) >
                               kLaunchSlackNs;
                      });
}

CallsKnown AreCallsKnown(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator) {
  if (communicator.captured) return CallsKnown::kCaptured;
  return AreOtherCallsKnown(process, communicator);
}

CallsKnown AreOtherCallsKnown(const ProcessSnapshot& process,
                              const CommunicatorSnapshot& communicator) {
  if (communicator.overflowed_calls != 0) return CallsKnown::kOverflowed;
  // Of several changes only the last is known. An earlier one may have hidden calls.
  if (process.event_mask_changes > 1 || LostEvents(process, communicator, kCallEvents)) {
    return CallsKnown::kEventMaskChanged;
  }
  return CallsKnown::kYes;
}

}  // namespace nccl_pulse
