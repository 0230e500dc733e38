#include "exporter/diagnosis/facts/call_state.h"

#include <algorithm>
#include <cstddef>

#include "exporter/diagnosis/facts/rank_activity.h"

namespace nccl_pulse {
namespace {

struct StateEntry {
  const char* name;
  const char* word;
};
// In the order of CallState.
constexpr StateEntry kStates[] = {{"unknown", "unknown"},   {"not_launched", "inside NCCL"},
                                  {"launched", "not done"}, {"in_flight", "not done"},
                                  {"completed", "done"},    {"captured", "in a graph"}};

// Says whether NCCL has reported the launches of all calls of a communicator, as far as is known.
bool AreAllReported(const CommunicatorSnapshot& communicator) {
  if (communicator.unreported_calls != 0) return false;
  for (const UntimedSnapshot& untimed : communicator.untimed) {
    if (untimed.reason == UntimedReason::kUnreported && untimed.operations != 0) return false;
  }
  for (const LastCallSnapshot& call : *communicator.last_calls) {
    if (!call.captured && call.launch == 0) return false;
  }
  return true;
}

}  // namespace

const char* CallStateName(CallState state) { return kStates[static_cast<std::size_t>(state)].name; }

const char* CallStateWord(const JudgedCall& call) {
  if (call.begun == OldestLaunch::kNotBegun) return "queued";
  return kStates[static_cast<std::size_t>(call.state)].word;
}

std::vector<JudgedCall> JudgeCalls(const ProcessSnapshot& process,
                                   const CommunicatorSnapshot& communicator,
                                   int64_t now_realtime_ns, int64_t stands_after_ns) {
  std::vector<JudgedCall> judged;
  if (communicator.last_calls == nullptr) return judged;
  const std::vector<LastCallSnapshot>& calls = *communicator.last_calls;
  const RankActivity activity = ActivityOf(process, communicator, now_realtime_ns, stands_after_ns);
  const bool are_all_reported = AreAllReported(communicator);
  // What is not known to have completed is told only while somebody looks.
  const bool is_seen = activity.reason != UnknownReason::kPollerStands &&
                       activity.reason != UnknownReason::kPollerNotStarted &&
                       activity.reason != UnknownReason::kNoCompletions &&
                       activity.reason != UnknownReason::kCounterLost;
  uint64_t launches_before_next = communicator.launches;  // of the next group
  uint64_t of_group = 0;  // the group's launch, until that is known of the call before
  uint64_t unreported = communicator.unreported_calls;
  judged.reserve(calls.size());
  for (std::size_t i = calls.size(); i-- > 0;) {
    const LastCallSnapshot& call = calls[i];
    const bool is_of_several =
        call.is_of_group || (i + 1 < calls.size() && calls[i + 1].is_of_group);
    if (i + 1 < calls.size() && !calls[i + 1].is_of_group && of_group != 0) {
      launches_before_next = of_group - 1;
    }
    JudgedCall one{&call, CallState::kUnknown, OldestLaunch::kUnknown};
    if (call.captured) {
      one.state = CallState::kCaptured;
    } else if (call.launch == 0) {
      if (unreported > 0 && call.launch_realtime_ns == 0) one.state = CallState::kNotLaunched;
    } else if (communicator.has_heartbeat) {
      of_group = call.launch;
      const uint64_t last_launch =
          is_of_several ? std::max(call.launch, launches_before_next) : call.launch;
      if (last_launch <= communicator.launches_completed) {
        // A call of several may have had a launch of its own that is hidden.
        const bool is_followed = last_launch < communicator.launches_completed;
        if (!is_of_several || is_followed || are_all_reported) one.state = CallState::kCompleted;
      } else if (is_seen) {
        const bool is_newest = i + 1 == calls.size() && call.launch == communicator.launches;
        one.state = is_newest && !is_of_several && activity.is_in_flight() ? CallState::kInFlight
                                                                           : CallState::kLaunched;
        if (call.launch == communicator.launches_completed + 1) one.begun = activity.oldest_launch;
      }
    }
    if (!call.captured && unreported > 0) --unreported;
    judged.push_back(one);
  }
  std::reverse(judged.begin(), judged.end());
  return judged;
}

}  // namespace nccl_pulse
