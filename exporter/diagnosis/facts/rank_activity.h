// RankActivity says whether a rank is idle, in flight, replaying, quiet or unknown. Metrics, JSON,
// `pulse status`, the page and the verdicts all use it.
//
// An activity is reported only if no unseen work could contradict it. Otherwise it is unknown, with
// a reason.
//
//   in flight   the background thread polls on time, and a launch had not completed at its last
//               poll, or was made since; or a replay of a CUDA graph was between two of its stamps
//               (docs/cuda-graphs.md)
//   replaying   calls were captured, and NCCL's counter of finished work has changed within the
//               last two seconds (docs/work-counters.md)
//   quiet       as replaying, but the counter has not changed: no replay runs, or one is stalled
//   idle        the background thread knows that all launches have completed, and no call can have
//               made work that it does not know of
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_RANK_ACTIVITY_H_
#define EXPORTER_DIAGNOSIS_FACTS_RANK_ACTIVITY_H_

#include <cstdint>
#include <optional>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Thresholds for a hang (ProcessSnapshot::hang_after_ns), at least a second.
inline constexpr int64_t kDefaultHangAfterNs = 10000000000;
// Returns the process' own threshold, or the default.
inline int64_t HangAfterNs(const ProcessSnapshot& process) {
  return process.hang_after_ns == 0 ? kDefaultHangAfterNs : process.hang_after_ns;
}
inline constexpr int64_t kLeastHangAfterNs = 1000000000;

// If a process' background thread has not polled for this long (normally it polls every 20 to 100
// ms), its last result counts as outdated. The process' own threshold for a hang counts if it is
// shorter: a stopped process must be known before a hang is reported.
inline constexpr int64_t kStoppedAfterNs = 5000000000;

enum class ActivityState : uint8_t { kUnknown, kIdle, kInFlight, kReplaying, kQuiet };

// Why an activity is unknown (label `reason` of nccl_state_unknown).
enum class UnknownReason : uint8_t {
  kNone,
  kPollerNotStarted,   // there is no background thread
  kPollerStalled,      // the background thread has not polled on time
  kNoCompletions,      // the end of work is not visible: API before v5, no driver, timing off
  kEventMaskChanged,   // another tool has disabled events for calls or launches
  kCaptured,           // calls were captured into a CUDA graph whose replays are not seen
  kLaunchNotReported,  // the launch of some calls is not reported, or not yet
  kPollerEnded,        // the background thread ended in exit()
  kDriverError,        // the driver reports an error from which the context does not recover
  kCounterStuck,       // captured, and reading the work counter does not return from the driver
  kCounterLost,        // its last launches have no events, and the work counter was lost meanwhile
  kCalibrating,        // captured recently, and the work counter is not proven yet
};
inline constexpr int kUnknownReasons = 12;
const char* UnknownReasonName(UnknownReason reason);
const char* UnknownReasonWords(UnknownReason reason);  // for people

struct RankActivity {
  ActivityState state = ActivityState::kUnknown;
  UnknownReason reason = UnknownReason::kNone;  // if kUnknown
  // In flight: time of the oldest launch. Quiet: last change of the counter. Unknown: the time that
  // belongs to `reason`, such as the last poll. 0: not known.
  int64_t since_realtime_ns = 0;
  OldestLaunch oldest_launch{};  // if kInFlight
  // True if a replay of a CUDA graph is in flight. Without a launch in flight, since_realtime_ns is
  // the time of its last passed stamp.
  bool is_in_replay = false;

  bool is_idle() const { return state == ActivityState::kIdle; }
  bool is_in_flight() const { return state == ActivityState::kInFlight; }
  bool is_quiet() const { return state == ActivityState::kQuiet; }
  // True if launches and their completions describe all of the rank's work.
  bool is_of_launches() const { return is_idle() || is_in_flight(); }
  bool is_unknown() const { return state == ActivityState::kUnknown; }
};

// A rank's state, as a name for programs and a word for people, and since when (0: not known).
struct RankState {
  const char* name = "";
  const char* word = "";
  int64_t since_realtime_ns = 0;
};
// `waits`: whether a verdict lists the rank as waiting.
RankState StateOf(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                  const RankActivity& activity, bool is_stopped, bool waits);

// Returns the number of incomplete launches; nothing if not known.
std::optional<uint64_t> LaunchesInFlight(const CommunicatorSnapshot& communicator,
                                         const RankActivity& activity);

// `now_realtime_ns`: time of the snapshot. For an ended process, returns its activity at its end.
RankActivity ActivityOf(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                        int64_t now_realtime_ns);

// Returns the activity at the background thread's last poll. After an error of the driver: at the
// last poll before it.
RankActivity ActivityAtLastPoll(const ProcessSnapshot& process,
                                const CommunicatorSnapshot& communicator, int64_t now_realtime_ns);

// Returns until when a process' activity is known: its end, its endpoint's last answer, or now.
int64_t SeenUntil(const ProcessSnapshot& process, int64_t now_realtime_ns);

// Returns when the oldest work in flight was launched: work that the background thread's last poll
// found incomplete, even if that poll is outdated, or launched since; 0: none.
int64_t SeenInFlightSince(const CommunicatorSnapshot& communicator);

// True if the process shows no sign of life: its background thread is stalled, and no thread has
// launched since.
bool IsStalled(const ProcessSnapshot& process, int64_t now_realtime_ns);

// True if the process IsStalled and may be stopped: the kernel does not report that it runs, or was
// not asked.
bool IsStopped(const ProcessSnapshot& process, int64_t now_realtime_ns);

// kYes if every call was counted under its operation, which comparing counts requires; else why
// not.
enum class CallsKnown : uint8_t { kYes, kCaptured, kOverflowed, kEventMaskChanged };
CallsKnown AreCallsKnown(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator);
// Like AreCallsKnown, but ignores captured calls.
CallsKnown AreOtherCallsKnown(const ProcessSnapshot& process,
                              const CommunicatorSnapshot& communicator);

// Returns now_ns - then_ns; 0 if that overflows, as values of a hostile segment can.
inline int64_t ElapsedNs(int64_t now_ns, int64_t then_ns) {
  int64_t elapsed = 0;
  return __builtin_sub_overflow(now_ns, then_ns, &elapsed) ? 0 : elapsed;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_RANK_ACTIVITY_H_
