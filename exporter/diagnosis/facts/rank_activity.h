// The one rule for "idle" and "in flight".
//
// Both are claims about a rank. A claim is made only when everything that could contradict it can
// be seen. Otherwise the activity is unknown, and the reason is given. Metrics, JSON, `pulse
// status`, the page and the verdicts all use this rule.
//
//   in flight   a launch that was seen had not completed when the background thread last
//               looked, or was made since, and that thread still looks; or a replay of a CUDA graph
//               was between two of its stamps (docs/cuda-graphs.md)
//   replaying   calls were captured, and NCCL's own counter of finished work, which is proven, has
//               moved within the last two seconds (docs/work-counters.md)
//   quiet       it has not: nothing is replayed, or a replay does not end. A hang says which
//   idle        the same thread knows that all of them have completed, and no call can have made
//               work that it does not know of
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_RANK_ACTIVITY_H_
#define EXPORTER_DIAGNOSIS_FACTS_RANK_ACTIVITY_H_

#include <cstdint>
#include <optional>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// How long a process' background thread may not have looked (it does every 20 to 100 ms) until what
// it saw last is no longer taken for what is.
inline constexpr int64_t kStoppedAfterNs = 5000000000;

enum class ActivityState : uint8_t { kUnknown, kIdle, kInFlight, kReplaying, kQuiet };

// Why an activity is unknown (label `reason` of nccl_state_unknown).
enum class UnknownReason : uint8_t {
  kNone,
  kPollerNotStarted,   // there is no background thread to see that work has ended
  kPollerStands,       // it has not looked for kStoppedAfterNs
  kNoCompletions,      // nothing tells that work has ended: API before v5, no driver, timing off
  kEventMaskChanged,   // somebody else took events away that calls or launches are known by
  kCaptured,           // calls were captured into a CUDA graph, whose replays are not seen
  kLaunchNotReported,  // calls of whose launch nothing tells, or not yet
  kPollerEnded,        // with exit(), which the process is in
  kDriverError,        // the driver answers with an error from which the context does not recover
  kCounterStuck,  // captured, and the driver does not return from reading the counter of its work
  kCounterLost,  // its last launches have no events, and the counter of its work was lost meanwhile
  kCalibrating,  // captured a moment ago, and the counter of its work is not proven yet
};
inline constexpr int kUnknownReasons = 12;
const char* UnknownReasonName(UnknownReason reason);
const char* UnknownReasonWords(UnknownReason reason);  // for people

struct RankActivity {
  ActivityState state = ActivityState::kUnknown;
  UnknownReason reason = UnknownReason::kNone;  // of kUnknown
  // In flight: since the oldest launch. Quiet: since the counter moved last. Unknown: since the first
  // call that was not reported, or the last look. 0: not known.
  int64_t since_realtime_ns = 0;
  OldestLaunch oldest_launch{};  // of kInFlight
  // A replay of a CUDA graph is in flight: since it was last seen to pass a stamp, where no launch
  // is.
  bool is_in_replay = false;

  bool is_idle() const { return state == ActivityState::kIdle; }
  bool is_in_flight() const { return state == ActivityState::kInFlight; }
  bool is_quiet() const { return state == ActivityState::kQuiet; }
  // Launches, and what has completed of them, are all that there is.
  bool is_of_launches() const { return is_idle() || is_in_flight(); }
  bool is_unknown() const { return state == ActivityState::kUnknown; }
};

// It tells what a rank does, for programs and in a word for people, and since when (0: not known).
struct RankState {
  const char* name = "";
  const char* word = "";
  int64_t since_realtime_ns = 0;
};
// `waits`: a verdict says that it waits.
RankState StateOf(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                  const RankActivity& activity, bool is_stopped, bool waits);

// Launches that are not known to have completed; none where that is not known.
std::optional<uint64_t> LaunchesInFlight(const CommunicatorSnapshot& communicator,
                                         const RankActivity& activity);

// `now_realtime_ns`: when the snapshot was read. What a process that ended did is told as of its
// end.
RankActivity ActivityOf(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                        int64_t now_realtime_ns, int64_t stands_after_ns = kStoppedAfterNs);

// Returns until when it is known what a process does: its end, when its endpoint fell silent, or now.
int64_t SeenUntil(const ProcessSnapshot& process, int64_t now_realtime_ns);

// Since when something was in flight when the background thread looked last, whenever that was, or
// was launched since; 0: nothing.
int64_t SeenInFlightSince(const CommunicatorSnapshot& communicator);

// Nothing of the process is seen to do anything: its background thread stands, and none of its threads
// has launched anything since.
bool Stands(const ProcessSnapshot& process, int64_t now_realtime_ns,
            int64_t stands_after_ns = kStoppedAfterNs);

// It stands because it does not run: the kernel says so, or was not asked.
bool IsStopped(const ProcessSnapshot& process, int64_t now_realtime_ns,
               int64_t stands_after_ns = kStoppedAfterNs);

// It says whether every call was counted under its operation. Comparing counts rests on that.
enum class CallsKnown : uint8_t { kYes, kCaptured, kOverflowed, kEventMaskChanged };
CallsKnown AreCallsKnown(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator);
// The same of calls that were not captured.
CallsKnown AreOtherCallsKnown(const ProcessSnapshot& process,
                              const CommunicatorSnapshot& communicator);

// Between two times that a hostile segment may have made up.
inline int64_t ElapsedNs(int64_t now_ns, int64_t then_ns) {
  int64_t elapsed = 0;
  return __builtin_sub_overflow(now_ns, then_ns, &elapsed) ? 0 : elapsed;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_RANK_ACTIVITY_H_
