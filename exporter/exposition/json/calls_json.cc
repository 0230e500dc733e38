#include "exporter/exposition/json/calls_json.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_text.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/waits/hang.h"
#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

// State of one of a rank's last calls, derived from the number of its launch and the number of
// completed launches. NCCL may cut a group into several launches and hide some of them. So a call
// of a group counts as completed only when all launches before the next group have completed. If
// the communicator may have had unreported calls, a launch of a later group must also have
// completed. Only some launches are followed by a mark that shows completion. So kInFlight is given
// only to the newest call, and only if it is alone in its group.
enum class CallState {
  kUnknown,      // none of the states below is known to hold
  kNotLaunched,  // NCCL has not reported its launch: it has not been made, or is hidden
  kLaunched,     // and not known to have ended
  kInFlight,     // the newest call
  kCompleted,
  kCaptured,  // into a CUDA graph, whose replays are not followed here
};
struct JudgedCall {
  const LastCallSnapshot* call;
  CallState state;
  OldestLaunch begun;  // of kLaunched and kInFlight
};

struct StateEntry {
  const char* name;
  const char* word;
};
// In the order of CallState.
constexpr StateEntry kStates[] = {{"unknown", "unknown"},   {"not_launched", "inside NCCL"},
                                  {"launched", "not done"}, {"in_flight", "not done"},
                                  {"completed", "done"},    {"captured", "in a graph"}};

// True if, as far as known, NCCL has reported the launches of all calls of a communicator.
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

const char* CallStateName(CallState state) { return kStates[static_cast<std::size_t>(state)].name; }

const char* CallStateWord(const JudgedCall& call) {
  if (call.begun == OldestLaunch::kNotBegun) return "queued";
  return kStates[static_cast<std::size_t>(call.state)].word;
}

// Returns the last calls of a communicator with their states, oldest first; empty if they were not
// read.
std::vector<JudgedCall> JudgeCalls(const ProcessSnapshot& process,
                                   const CommunicatorSnapshot& communicator,
                                   int64_t now_realtime_ns) {
  std::vector<JudgedCall> judged;
  if (communicator.last_calls == nullptr) return judged;
  const std::vector<LastCallSnapshot>& calls = *communicator.last_calls;
  const RankActivity activity = ActivityOf(process, communicator, now_realtime_ns);
  const bool are_all_reported = AreAllReported(communicator);
  // Without a running poller, "in flight" and "completed but not yet seen" look the same.
  const bool is_seen = activity.reason != UnknownReason::kPollerStalled &&
                       activity.reason != UnknownReason::kPollerNotStarted &&
                       activity.reason != UnknownReason::kNoCompletions &&
                       activity.reason != UnknownReason::kCounterLost;
  uint64_t launches_before_next = communicator.launches;  // of the next group
  uint64_t of_group = 0;  // launch of the current group, until an older call names another one
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
        // A call of a group may have had its own, hidden launch.
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

// Formats JSON without the library, because there are thousands of calls.
std::string QuotedOrNull(const std::string& text) {
  return text.empty() ? "null" : QuotedJson(text);
}
std::string TimeText(int64_t realtime_ns) {
  return realtime_ns == 0 ? "null" : absl::StrFormat("%.6f", SecondsToMicrosecond(realtime_ns));
}
std::string NumberOrNull(int32_t rank) { return rank < 0 ? "null" : absl::StrCat(rank); }
template <typename Number>
std::string List(const std::vector<Number>& numbers) {
  std::string text = "[";
  for (const Number number : numbers) absl::StrAppend(&text, text.size() > 1 ? "," : "", number);
  return text + "]";
}

// Returns stream durations by operation, size class and call number.
using Durations = std::map<std::tuple<std::string_view, int, uint64_t>, uint64_t>;
Durations DurationsOf(const CommunicatorSnapshot& communicator) {
  Durations durations;
  for (const TimedCallSnapshot& call : communicator.timed_calls) {
    if (call.kind != LatencyKind::kDurationStream) continue;
    durations[{call.op, call.size_class, call.call_number}] = call.duration_ns;
  }
  return durations;
}

void AppendCall(const JudgedCall& judged, uint64_t group, const Durations& durations,
                std::string* out) {
  const LastCallSnapshot& call = *judged.call;
  absl::StrAppend(out, "{\"number\":", call.number, ",\"collective\":");
  if (call.collective_number != 0) {
    absl::StrAppend(out, call.collective_number);
  } else {
    absl::StrAppend(out, "null");
  }
  absl::StrAppend(out, ",\"of_kind\":");
  if (call.kind_number) {
    absl::StrAppend(out, uint64_t{*call.kind_number} + 1);
  } else {
    absl::StrAppend(out, "null");
  }
  absl::StrAppend(out, ",\"op\":", QuotedJson(call.op),
                  ",\"datatype\":", QuotedOrNull(call.datatype), ",\"bytes\":", call.bytes,
                  ",\"group\":", group, ",\"stream\":");
  if (call.stream_tag == 0) {
    absl::StrAppend(out, "null");
  } else {
    absl::StrAppend(out, "\"", absl::Hex(call.stream_tag, absl::kZeroPad4), "\"");
  }
  absl::StrAppend(out, ",\"root\":", NumberOrNull(call.root), ",\"peer\":", NumberOrNull(call.peer),
                  ",\"captured\":", call.captured ? "true" : "false",
                  ",\"launched\":", TimeText(call.launch_realtime_ns), ",\"state\":\"",
                  CallStateName(judged.state), "\",\"state_word\":\"", CallStateWord(judged),
                  "\",\"begun\":",
                  judged.begun == OldestLaunch::kUnknown
                      ? "null"
                      : (judged.begun == OldestLaunch::kBegun ? "true" : "false"));
  const auto found = call.kind_number.has_value()
                         ? durations.find({call.op, SizeClassOf(call.bytes), *call.kind_number})
                         : durations.end();
  if (found == durations.end()) {
    absl::StrAppend(out, ",\"seconds\":null,\"timed_by\":null}");
  } else {
    absl::StrAppend(
        out, ",\"seconds\":", absl::StrFormat("%.9f", static_cast<double>(found->second) / 1e9),
        ",\"timed_by\":\"stream\"}");
  }
}

const char* WhyMissing(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator) {
  if (communicator.last_calls != nullptr) return "null";
  if (process.last_calls_wanted == 0) return "\"off\"";
  return communicator.last_calls_kept == 0 ? "\"no_room\"" : "\"not_read\"";
}

void AppendRank(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator,
                int64_t now_realtime_ns, std::string* out) {
  absl::StrAppend(out, "{\"rank\":", communicator.rank, ",\"pid\":", process.pid,
                  ",\"pid_namespace\":", process.pid_namespace,
                  ",\"hostname\":", QuotedOrNull(process.hostname),
                  ",\"global_rank\":", QuotedOrNull(process.global_rank),
                  ",\"gpu\":", QuotedOrNull(communicator.gpu),
                  ",\"kept\":", communicator.last_calls_kept,
                  ",\"missing\":", WhyMissing(process, communicator), ",\"calls\":");
  if (communicator.last_calls == nullptr) {
    absl::StrAppend(out, "null}");
    return;
  }
  const Durations durations = DurationsOf(communicator);
  absl::StrAppend(out, "[");
  uint64_t group = 0;
  bool is_first = true;
  for (const JudgedCall& judged : JudgeCalls(process, communicator, now_realtime_ns)) {
    if (is_first || !judged.call->is_of_group) group = judged.call->number;
    if (!is_first) absl::StrAppend(out, ",\n");
    is_first = false;
    AppendCall(judged, group, durations, out);
  }
  absl::StrAppend(out, "]}");
}

}  // namespace

std::string CallsJson(const SnapshotSet& snapshots, uint64_t comm_id, int64_t now_realtime_ns,
                      const DiagnosisResult& diagnosis) {
  struct Rank {
    const ProcessSnapshot* process;
    const CommunicatorSnapshot* communicator;
  };
  std::vector<Rank> ranks;
  for (const auto* processes : {&snapshots.processes, &snapshots.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      for (const CommunicatorSnapshot& communicator : process.communicators) {
        if (communicator.comm_id == comm_id) ranks.push_back({&process, &communicator});
      }
    }
  }
  if (ranks.empty()) return "";
  std::stable_sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
    return a.communicator->rank < b.communicator->rank;
  });
  const auto found = std::find_if(
      diagnosis.begin(), diagnosis.end(),
      [comm_id](const CommunicatorDiagnosis& each) { return each.comm_id == comm_id; });
  const Hang* hang = found != diagnosis.end() && found->hang ? &*found->hang : nullptr;
  const CommunicatorSnapshot& first = *ranks.front().communicator;
  std::string out = absl::StrCat(
      "{\"time\":", TimeText(now_realtime_ns), ",\"comm\":\"", CommunicatorText(comm_id),
      "\",\"name\":", QuotedOrNull(first.name), ",\"nranks\":", first.nranks,
      ",\"verdict\":", hang == nullptr ? "null" : QuotedJson(HangVerdictName(hang->verdict)),
      ",\"suspects\":", hang == nullptr ? "[]" : List(hang->suspects), ",\"ranks\":[");
  bool is_first = true;
  for (const Rank& rank : ranks) {
    if (!is_first) out += ",\n";
    is_first = false;
    AppendRank(*rank.process, *rank.communicator, now_realtime_ns, &out);
  }
  return out + "]}\n";
}

}  // namespace nccl_pulse
