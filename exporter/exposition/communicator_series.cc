#include "exporter/exposition/communicator_series.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "exporter/base/time.h"
#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/waits/usual_wait.h"
#include "exporter/exposition/captured_kind.h"
#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/classic_buckets.h"
#include "metrics/driver_error.h"
#include "metrics/size_class.h"

namespace nccl_pulse {

namespace {

std::string_view TimingName(LatencyKind kind) {
  return kind == LatencyKind::kDurationStream  ? "stream"
         : kind == LatencyKind::kDurationGraph ? "graph"
                                               : "kernel";
}

void AddLatency(const LatencySnapshot& latency, FamilySet* set) {
  const std::string_view size = SizeClassName(latency.size_class);
  switch (latency.kind) {
    case LatencyKind::kDurationStream:
    case LatencyKind::kDurationGraph:
    case LatencyKind::kDurationKernel: {
      const LabelValues labels = {latency.op, size, TimingName(latency.kind), latency.user_tag};
      set->Histogram(MetricId::kOperationDuration, labels, latency.histogram);
      set->Counter(MetricId::kTimedBusBytes, labels, latency.bus_bytes);
      break;
    }
    case LatencyKind::kDurationNetwork:
      set->NetworkDuration({latency.op, size, "network", latency.user_tag}, latency.histogram);
      break;
    case LatencyKind::kCompletionProxy:
      set->Histogram(MetricId::kOperationCompletion, {latency.op, size, "proxy"},
                     latency.histogram);
      break;
    case LatencyKind::kCompletionKernel:
      set->Histogram(MetricId::kOperationCompletion, {latency.op, size, "kernel"},
                     latency.histogram);
      break;
  }
}

// Adds series of graph replays. Absent if none was seen, since unseen ones may have run.
void AddGraphs(const CommunicatorSnapshot& comm, FamilySet* set) {
  if (comm.graph_replays == 0) return;
  set->Counter(MetricId::kGraphReplays, {}, comm.graph_replays);
  set->Gauge(MetricId::kGraphReplaysInFlight, {},
             static_cast<double>(comm.graph_replays_in_flight));
  set->Gauge(MetricId::kGraphProgress, {}, Seconds(comm.graph_moved_realtime_ns));
  for (const ReplayedCallsSnapshot& replayed : comm.replayed) {
    const std::string_view size = SizeClassName(replayed.size_class);
    set->Counter(MetricId::kGraphOperations, {replayed.op, size}, replayed.operations);
    set->Counter(MetricId::kGraphOperationBytes, {replayed.op, size}, replayed.bytes);
  }
}

// Adds NCCL's own counter of replayed work.
void AddWork(const CommunicatorSnapshot& comm, FamilySet* set) {
  if (comm.work.state != WorkState::kProven || !comm.captured) return;
  if (comm.work.are_operations_known) {
    constexpr std::string_view kSeveral = "several";
    const CapturedKind kind = CapturedKindOf(comm);
    set->Counter(MetricId::kWorkOperations,
                 {kind.op.empty() ? kSeveral : kind.op,
                  kind.has_size() ? SizeClassName(kind.size_class) : kSeveral},
                 comm.work.operations);
  }
  set->Gauge(MetricId::kWorkProgress, {}, Seconds(comm.work.moved_realtime_ns));
}

// Adds the series of launches. Unknown values are absent, never zero.
void AddActivity(const ProcessSnapshot& process, const CommunicatorSnapshot& comm, int64_t now_ns,
                 FamilySet* set) {
  set->Flag(MetricId::kCaptured, comm.captured);
  const RankActivity activity = ActivityOf(process, comm, now_ns);
  const bool is_looked_at = activity.reason != UnknownReason::kPollerNotStarted &&
                            activity.reason != UnknownReason::kPollerStalled &&
                            activity.reason != UnknownReason::kPollerEnded;
  if (comm.operations_source != CompletionSource::kNone && is_looked_at) {
    set->Gauge(MetricId::kOldestInflightOperation,
               {comm.operations_source == CompletionSource::kProxy ? "proxy" : "kernel"},
               Seconds(comm.oldest_operation_realtime_ns));
  }
  if (activity.is_unknown() && !comm.finalized && process.end == ProcessEnd::kLive) {
    set->Gauge(MetricId::kActivityUnknown, {UnknownReasonName(activity.reason)}, 1);
  }
  for (const LongestWaitSnapshot& wait : comm.longest_waits) {
    if (wait.longest_ns < kLeastLongWaitNs) continue;
    set->Gauge(MetricId::kLongestWait, {wait.op, SizeClassName(wait.size_class)},
               Seconds(wait.longest_ns));
  }
  if (const char* error = DriverErrorName(comm.driver_error); error != nullptr) {
    set->Gauge(MetricId::kDriverError, {error}, Seconds(comm.driver_error_realtime_ns));
  }
  if (!comm.has_heartbeat) return;
  set->Counter(MetricId::kLaunchesCompleted, {}, comm.launches_completed);
  const std::optional<uint64_t> in_flight = LaunchesInFlight(comm, activity);
  if (!in_flight) return;
  set->Gauge(MetricId::kInflightLaunches, {}, static_cast<double>(*in_flight));
  set->Gauge(MetricId::kOldestInflightLaunch, {},
             activity.is_in_flight() ? Seconds(activity.since_realtime_ns) : 0);
}

// Adds all directions and reasons as soon as one is not zero: a series that appears later would
// break rate().
void AddNetwork(const CommunicatorSnapshot& comm, FamilySet* set) {
  const auto is_zero = [](uint64_t value) { return value == 0; };
  if (std::all_of(comm.network_bytes.begin(), comm.network_bytes.end(), is_zero) &&
      std::all_of(comm.network_wait_ns.begin(), comm.network_wait_ns.end(), is_zero)) {
    return;
  }
  for (int i = 0; i < kNetworkDirections; ++i) {
    set->Counter(MetricId::kNetworkBytes, {NetworkDirectionName(static_cast<NetworkDirection>(i))},
                 comm.network_bytes[i]);
  }
  for (int i = 0; i < kNetworkWaits; ++i) {
    const auto wait = static_cast<NetworkWait>(i);
    set->SecondsCounter(MetricId::kNetworkWait,
                        {NetworkDirectionName(NetworkWaitDirection(wait)), NetworkWaitReason(wait)},
                        comm.network_wait_ns[i]);
  }
}

}  // namespace

void AddCommunicator(const ProcessSnapshot& process, const CommunicatorSnapshot& comm,
                     int64_t now_ns, FamilySet* set) {
  set->SetScope(MetricScope::kCommunicator, {Hex(comm.comm_id, 16), Digits(comm.rank)});
  set->Info(MetricId::kCommunicatorInfo,
            {comm.name, Digits(comm.nranks), Digits(comm.nnodes), process.global_rank,
             process.local_rank, process.job_id, Digits(comm.index), Digits(process.pid),
             PidNamespace(process), process.hostname, comm.gpu, comm.uuid, comm.pci_bus_id});
  set->Flag(MetricId::kCommunicatorFinalized, comm.finalized);
  for (const CallCountSnapshot& call : comm.calls) {
    const std::string_view size = SizeClassName(call.size_class);
    set->Counter(MetricId::kOperations,
                 {call.op, size, call.datatype, call.captured ? "true" : "false", call.user_tag},
                 call.calls);
    // Sums all datatypes, captured or not: equal labels are added up.
    set->Counter(MetricId::kOperationBytes, {call.op, size}, call.bytes);
  }
  for (const CompositeSnapshot& composite : comm.composites) {
    set->Counter(
        MetricId::kCompositeOperations,
        {composite.op, SizeClassName(composite.size_class), composite.captured ? "true" : "false"},
        composite.operations);
  }
  for (const AlgorithmCountSnapshot& count : comm.algorithms) {
    set->Counter(MetricId::kAlgorithmOperations, {count.op, count.algo, count.proto},
                 count.operations);
  }
  set->Counter(MetricId::kLaunches, {}, comm.launches);
  AddActivity(process, comm, now_ns, set);
  for (const LatencySnapshot& latency : comm.latencies) AddLatency(latency, set);
  for (const UntimedSnapshot& untimed : comm.untimed) {
    set->Counter(MetricId::kUntimedOperations, {untimed.op, UntimedReasonName(untimed.reason)},
                 untimed.operations);
  }
  for (const UncompletedSnapshot& uncompleted : comm.uncompleted) {
    set->Counter(MetricId::kUncompletedOperations, {uncompleted.op}, uncompleted.operations);
  }
  if (comm.last_launch_realtime_ns != 0) {
    set->Gauge(MetricId::kLastLaunchTimestamp, {}, Seconds(comm.last_launch_realtime_ns));
  }
  if (comm.last_completion_realtime_ns != 0) {
    set->Gauge(MetricId::kLastCompletionTimestamp, {}, Seconds(comm.last_completion_realtime_ns));
  }
  AddNetwork(comm, set);
  AddGraphs(comm, set);
  AddWork(comm, set);
  if (process.timing == "kernel") {
    // Always both reasons: a series that appears with the failure has no earlier value to compare
    // with.
    set->Gauge(MetricId::kKernelTimingUntrusted, {"self_send"},
               comm.kernel_trust == TrustState::kSelfSend ? 1 : 0);
    set->Gauge(MetricId::kKernelTimingUntrusted, {"checks_failed"},
               comm.kernel_trust == TrustState::kChecksFailed ? 1 : 0);
  }
  set->SeenCounter(MetricId::kOverflowedOperations, {}, comm.overflowed_operations);
}

// Two containers behind one endpoint may both have a process 7 with rank 0.
std::string PidNamespace(const ProcessSnapshot& process) {
  return process.pid_namespace == 0 ? "" : std::to_string(process.pid_namespace);
}

namespace {

void AddWorkCounters(const ProcessSnapshot& process, FamilySet* set) {
  std::map<std::pair<WorkState, WorkRefutal>, int> counts;
  for (const CommunicatorSnapshot& comm : process.communicators) {
    if (comm.work.state != WorkState::kOff) ++counts[{comm.work.state, comm.work.refutal}];
  }
  for (const auto& [what, count] : counts) {
    set->Gauge(MetricId::kWorkCounters, {WorkStateName(what.first), WorkRefutalName(what.second)},
               count);
  }
}

}  // namespace

void AddProcess(const ProcessSnapshot& process, FamilySet* set) {
  set->SetScope(MetricScope::kProcess,
                {Digits(process.pid), PidNamespace(process), process.global_rank});
  set->Info(MetricId::kBuildInfo,
            {process.plugin_version, Digits(process.nccl_api_version), process.timing,
             process.duration_source, process.completion_source, "0x" + Hex(process.event_mask, 1),
             process.shared_memory ? "shared" : "private"});
  set->Gauge(MetricId::kProcessUp, {}, process.end == ProcessEnd::kLive ? 1 : 0);
  if (process.end != ProcessEnd::kLive) {
    set->Gauge(MetricId::kProcessEnd, {ProcessEndName(process.end)},
               Seconds(process.end_realtime_ns));
  }
  set->Gauge(MetricId::kStartTimestamp, {}, Seconds(process.start_realtime_ns));
  if (process.last_poll_realtime_ns != 0) {
    set->Gauge(MetricId::kLastPollTimestamp, {}, Seconds(process.last_poll_realtime_ns));
  }
  if (process.run_state != RunState::kUnknown) {
    set->Gauge(MetricId::kProcessState, {RunStateName(process.run_state)}, 1);
  }
  if (process.sampling_exponent >= 0) {
    set->Gauge(MetricId::kSamplingExponent, {}, std::ldexp(1.0, -process.sampling_exponent));
  }
  set->SeenCounter(MetricId::kEventMaskChanges, {}, process.event_mask_changes);
  if (process.event_mask_changes != 0) {
    set->Info(MetricId::kForeignEventMask, {"0x" + Hex(process.foreign_event_mask, 1)});
  }
  if (process.network_observed_ns != 0) {
    set->SecondsCounter(MetricId::kNetworkObserved, {}, process.network_observed_ns);
  }
  for (int i = 0; i < kCaptureFates; ++i) {
    set->SeenCounter(MetricId::kGraphCaptures, {CaptureFateName(static_cast<CaptureFate>(i))},
                     process.graph_captures[i]);
  }
  AddWorkCounters(process, set);
  for (int i = 0; i < kCommandResults; ++i) {
    set->SeenCounter(MetricId::kCommands, {CommandResultName(static_cast<CommandResult>(i))},
                     process.commands[i]);
  }
  for (int i = 0; i < kLiveSettings; ++i) {
    if ((process.changed_settings >> i & 1) == 0) continue;
    set->Gauge(MetricId::kSettingChanged, {LiveSettingName(static_cast<LiveSetting>(i))}, 1);
  }
  for (int i = 0; i < kCallbackKinds; ++i) {
    set->SeenCounter(MetricId::kCallbacks, {CallbackKindName(static_cast<CallbackKind>(i))},
                     process.callbacks[i]);
  }
  set->Summary(MetricId::kCallbackDuration, {}, process.sampled_callbacks,
               Seconds(process.sampled_callback_ns));
  for (int i = 0; i < kIgnoredReasons; ++i) {
    set->SeenCounter(MetricId::kIgnoredEvents, {IgnoredReasonName(static_cast<IgnoredReason>(i))},
                     process.ignored[i]);
  }
  set->Gauge(MetricId::kSeriesUsed, {}, static_cast<double>(process.series_used));
  set->Gauge(MetricId::kSeriesLimit, {}, static_cast<double>(process.series_limit));
  set->Gauge(MetricId::kCommunicatorsUsed, {}, static_cast<double>(process.communicators_used));
  set->Gauge(MetricId::kCommunicatorsLimit, {}, static_cast<double>(process.communicator_limit));
  set->SeenCounter(MetricId::kRecycledCommunicators, {}, process.recycled_communicators);
  for (const RecycledCallsSnapshot& recycled : process.recycled_calls) {
    set->Counter(MetricId::kRecycledOperations, {recycled.op}, recycled.calls);
    set->Counter(MetricId::kRecycledOperationBytes, {recycled.op}, recycled.bytes);
  }
}

}  // namespace nccl_pulse
