// This says what became of each of the last calls of a rank.
//
// It follows from the number of its launch and from how many launches have
// completed. A call of a group counts as completed when all launches before the next group's have:
// NCCL may cut a group into several. As it may hide some of them, a launch of a later group must
// have completed, too, unless the communicator is not known to have had calls that were not
// reported. What has completed is known by marks behind some launches, so of those that are not
// known to have ended only the newest call's, alone in its group, is said to be in flight.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_CALL_STATE_H_
#define EXPORTER_DIAGNOSIS_FACTS_CALL_STATE_H_

#include <cstdint>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

enum class CallState {
  kUnknown,      // it cannot be told
  kNotLaunched,  // NCCL has not reported its launch: it has not been made, or is hidden
  kLaunched,     // and not known to have ended
  kInFlight,     // the newest call
  kCompleted,
  kCaptured,  // into a CUDA graph, whose replays are not followed here
};
const char* CallStateName(CallState state);

struct JudgedCall {
  const LastCallSnapshot* call;
  CallState state;
  OldestLaunch begun;  // of kLaunched and kInFlight
};
const char* CallStateWord(const JudgedCall& call);  // for people: "done", "queued"
// The last calls of a communicator, oldest first; empty where they were not read.
std::vector<JudgedCall> JudgeCalls(const ProcessSnapshot& process,
                                   const CommunicatorSnapshot& communicator,
                                   int64_t now_realtime_ns, int64_t stands_after_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_STATE_H_
