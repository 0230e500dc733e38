#include "exporter/exposition/process_series.h"

#include <map>
#include <utility>

#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/series_values.h"

namespace nccl_pulse {

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
    set->Gauge(MetricId::kSamplingExponent, {}, process.sampling_exponent);
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
