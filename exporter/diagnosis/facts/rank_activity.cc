#include "exporter/diagnosis/facts/rank_activity.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

// The counter of finished work is read ten times a second.
constexpr int64_t kQuietAfterNs = 2000000000;

// The background thread may have stopped before it saw a launch as young as this.
constexpr int64_t kLaunchSlackNs = 1000000000;

bool IsPollerStalled(const ProcessSnapshot& process, int64_t now_ns) {
  const int64_t polled = process.last_poll_realtime_ns;
  if (polled == 0) return process.poller == PollerState::kRunning;  // it has never polled
  return ElapsedNs(SeenUntil(process, now_ns), polled) >=
         std::clamp(HangAfterNs(process), kLeastHangAfterNs, kStoppedAfterNs);
}

// True if some of the events `wanted` were requested from NCCL, and are no longer reported.
bool LostEvents(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                uint32_t wanted) {
  return process.event_mask_changes != 0 &&
         (communicator.event_mask & wanted & ~process.foreign_event_mask) != 0;
}

// True if CUDA events track launches, or did until the driver's error.
bool AreLaunchesFollowed(const CommunicatorSnapshot& communicator) {
  return communicator.has_heartbeat || communicator.driver_error != 0;
}

RankActivity Unknown(UnknownReason reason, int64_t since_ns = 0) {
  return {ActivityState::kUnknown, reason, since_ns, OldestLaunch::kUnknown, false};
}

struct ReasonEntry {
  const char* name;
  const char* words;
};
// In the order of UnknownReason.
constexpr ReasonEntry kReasons[kUnknownReasons] = {
    {"none", "nothing is missing"},
    {"poller_not_started", "the plugin's background thread could not be started"},
    {"poller_stands", "the plugin's background thread is not running"},
    {"no_completions", "the end of its work is not reported"},
    {"event_mask_changed", "another program changed NCCL's profiler event mask"},
    {"captured", "it uses CUDA graphs"},
    {"launch_not_reported", "NCCL does not report the launch of its last call"},
    {"poller_ended", "the process is in exit()"},
    {"driver_error", "the GPU's driver answers with an error"},
    {"counter_stuck",
     "it uses CUDA graphs, and the driver call that reads their progress does not return"},
    {"counter_lost", "NCCL's counter of finished work was lost before its last launches ended"},
    {"calibrating", "NCCL's counter of finished work is being calibrated"},
};
const ReasonEntry& ReasonOf(UnknownReason reason) {
  return kReasons[static_cast<std::size_t>(reason)];
}

}  // namespace

const char* UnknownReasonName(UnknownReason reason) { return ReasonOf(reason).name; }
const char* UnknownReasonWords(UnknownReason reason) { return ReasonOf(reason).words; }

RankState StateOf(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                  const RankActivity& activity, bool is_stopped, bool waits) {
  if (communicator.finalized) return {"ended", "ended"};
  if (process.end != ProcessEnd::kLive) return {"gone", "gone", process.end_realtime_ns};
  if (is_stopped) return {"stopped", "stopped", process.last_poll_realtime_ns};
  if (activity.is_in_flight()) {
    const bool is_queued = activity.oldest_launch == OldestLaunch::kNotBegun;
    return {"in_flight",
            waits       ? "waits"
            : is_queued ? "queued"
                        : "in flight",
            activity.since_realtime_ns};
  }
  if (activity.is_idle()) return {"idle", "idle", communicator.last_completion_realtime_ns};
  if (activity.is_quiet()) return {"quiet", waits ? "waits" : "quiet", activity.since_realtime_ns};
  if (activity.state == ActivityState::kReplaying) return {"replaying", "replaying"};
  const bool is_stuck = activity.reason == UnknownReason::kCounterStuck;
  const bool is_captured =
      activity.reason == UnknownReason::kCaptured || activity.reason == UnknownReason::kCalibrating;
  return {"unknown",
          waits         ? "waits"
          : is_stuck    ? "stuck"
          : is_captured ? "in graphs"
                        : "unknown",
          is_stuck ? activity.since_realtime_ns : communicator.unreported_since_realtime_ns};
}

std::optional<uint64_t> LaunchesInFlight(const CommunicatorSnapshot& communicator,
                                         const RankActivity& activity) {
  // If only a replay is known, launches may wait behind it.
  if (!communicator.has_heartbeat || !activity.is_of_launches() ||
      (activity.is_in_replay && SeenInFlightSince(communicator) == 0)) {
    return std::nullopt;
  }
  // The two were not read at the same moment.
  return communicator.launches - std::min(communicator.launches, communicator.launches_completed);
}

RankActivity ActivityOf(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                        int64_t now_realtime_ns) {
  if (process.poller == PollerState::kNotStarted) return Unknown(UnknownReason::kPollerNotStarted);
  if (process.poller == PollerState::kEnded) {
    return Unknown(UnknownReason::kPollerEnded, process.last_poll_realtime_ns);
  }
  if (IsPollerStalled(process, now_realtime_ns)) {
    return Unknown(UnknownReason::kPollerStalled, process.last_poll_realtime_ns);
  }
  if (communicator.driver_error != 0) {
    return Unknown(UnknownReason::kDriverError, communicator.driver_error_realtime_ns);
  }
  return ActivityAtLastPoll(process, communicator, now_realtime_ns);
}

RankActivity ActivityAtLastPoll(const ProcessSnapshot& process,
                                const CommunicatorSnapshot& communicator, int64_t now_realtime_ns) {
  const bool is_in_replay = communicator.graph_replays_in_flight != 0;
  if (const int64_t since = SeenInFlightSince(communicator); since != 0 || is_in_replay) {
    // A launch that has not begun may be queued behind the replay.
    const bool is_told = AreLaunchesFollowed(communicator) && !is_in_replay;
    return {ActivityState::kInFlight, UnknownReason::kNone,
            since != 0 ? since : communicator.graph_moved_realtime_ns,
            is_told ? communicator.oldest_launch : OldestLaunch::kUnknown, is_in_replay};
  }
  if (!AreLaunchesFollowed(communicator)) return Unknown(UnknownReason::kNoCompletions);
  // Of several changes only the last is known. An earlier one may have hidden work that still runs.
  if (process.event_mask_changes > 1 ||
      LostEvents(process, communicator, kCallEvents | kLaunchEvents)) {
    return Unknown(UnknownReason::kEventMaskChanged);
  }
  // If a call without a launch is queued behind these launches, the checks below decide by that
  // call.
  if (communicator.oldest_launch == OldestLaunch::kUntold &&
      communicator.launches > communicator.launches_completed &&
      communicator.unreported_calls == 0) {
    return Unknown(UnknownReason::kCounterLost, communicator.last_launch_realtime_ns);
  }
  if (communicator.captured) {
    const int64_t moved = communicator.work.moved_realtime_ns;
    if (communicator.work.state == WorkState::kStuck) {
      return Unknown(UnknownReason::kCounterStuck, moved);
    }
    // Whichever word is the counter: if the block does not change, the counter does not.
    const bool is_seen = communicator.work.state == WorkState::kCalibrating && moved != 0;
    if (communicator.work.state != WorkState::kProven && !is_seen) {
      return Unknown(communicator.work.is_being_proven ? UnknownReason::kCalibrating
                                                       : UnknownReason::kCaptured);
    }
    const bool is_quiet = ElapsedNs(SeenUntil(process, now_realtime_ns), moved) >= kQuietAfterNs;
    return {is_quiet ? ActivityState::kQuiet : ActivityState::kReplaying, UnknownReason::kNone,
            is_quiet ? moved : 0, OldestLaunch::kUnknown, false};
  }
  // Launches of a communicator run in order (NCCL's ncclLaunchPrepare). So a launch that was
  // reported and has completed proves that all launches before it have; only calls after the last
  // such launch count here.
  if (communicator.unreported_calls != 0) {
    return Unknown(UnknownReason::kLaunchNotReported, communicator.unreported_since_realtime_ns);
  }
  return {ActivityState::kIdle, UnknownReason::kNone, 0, OldestLaunch::kUnknown, false};
}

int64_t SeenUntil(const ProcessSnapshot& process, int64_t now_realtime_ns) {
  if (process.end == ProcessEnd::kLive) {
    return process.heard_realtime_ns != 0 ? process.heard_realtime_ns : now_realtime_ns;
  }
  return process.end_realtime_ns != 0 ? process.end_realtime_ns : process.last_poll_realtime_ns;
}

int64_t SeenInFlightSince(const CommunicatorSnapshot& communicator) {
  if (!AreLaunchesFollowed(communicator)) {
    return communicator.operations_source == CompletionSource::kNone
               ? 0
               : communicator.oldest_operation_realtime_ns;
  }
  // The two numbers are from different moments: launches are counted at once, completions at the
  // last poll.
  if (communicator.launches <= communicator.launches_completed ||
      communicator.oldest_launch == OldestLaunch::kUntold) {
    return 0;
  }
  return communicator.oldest_inflight_realtime_ns != 0 ? communicator.oldest_inflight_realtime_ns
                                                       : communicator.last_launch_realtime_ns;
}

bool IsStopped(const ProcessSnapshot& process, int64_t now_realtime_ns) {
  return process.run_state != RunState::kRunning &&
         process.run_state != RunState::kUninterruptible && IsStalled(process, now_realtime_ns);
}

bool IsStalled(const ProcessSnapshot& process, int64_t now_realtime_ns) {
  const int64_t polled = process.last_poll_realtime_ns;
  return process.end == ProcessEnd::kLive && process.poller != PollerState::kNotStarted &&
         process.poller != PollerState::kEnded && polled != 0 &&
         IsPollerStalled(process, now_realtime_ns) &&
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
  // Only the last of several changes is known. An earlier one may have hidden calls.
  if (process.event_mask_changes > 1 || LostEvents(process, communicator, kCallEvents)) {
    return CallsKnown::kEventMaskChanged;
  }
  return CallsKnown::kYes;
}

}  // namespace nccl_pulse
