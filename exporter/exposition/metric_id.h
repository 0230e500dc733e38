// Numbers the metrics; catalogue.h defines them. Separate from it, so that code which only names
// metrics does not include prometheus-cpp.
//
// Thread: any; constants.
#ifndef EXPORTER_EXPOSITION_METRIC_ID_H_
#define EXPORTER_EXPOSITION_METRIC_ID_H_

namespace nccl_pulse {

// In the order of pages and docs/metrics.md.
enum class MetricId : int {
  kCommunicatorInfo,
  kCommunicatorFinalized,
  kOperations,
  kOperationBytes,
  kCompositeOperations,
  kAlgorithmOperations,
  kLaunches,
  kLaunchesCompleted,
  kInflightLaunches,
  kOldestInflightLaunch,
  kOldestInflightOperation,
  kActivityQueued,
  kActivityUnknown,
  kDriverError,
  kLongestWait,
  kCaptured,
  kGraphReplays,
  kGraphReplaysInFlight,
  kGraphProgress,
  kGraphOperations,
  kGraphOperationBytes,
  kWorkOperations,
  kWorkProgress,
  kOperationDuration,
  kOperationCompletion,
  kTimedBusBytes,
  kUntimedOperations,
  kUncompletedOperations,
  kStragglerSeconds,
  kLastLaunchTimestamp,
  kLastCompletionTimestamp,
  kNetworkBytes,
  kNetworkWait,
  kKernelTimingUntrusted,
  kOverflowedOperations,
  kBuildInfo,
  kProcessUp,
  kProcessEnd,
  kStartTimestamp,
  kLastPollTimestamp,
  kProcessState,
  kSamplingExponent,
  kEventMaskChanges,
  kForeignEventMask,
  kNetworkObserved,
  kGraphCaptures,
  kWorkCounters,
  kCommands,
  kSettingChanged,
  kCallbacks,
  kCallbackDuration,
  kIgnoredEvents,
  kSeriesUsed,
  kSeriesLimit,
  kCommunicatorsUsed,
  kCommunicatorsLimit,
  kRecycledCommunicators,
  kRecycledOperations,
  kRecycledOperationBytes,
  kHangStart,
  kHangUsual,
  kScrapeDuration,
  kProcesses,
  kSegmentsRead,
  kSegmentsRejected,
  kServerStart,
  kServerCpu,
  kServerResident,
  kServerVirtual,
  kServerOpenFiles,
  kServerMostFiles,
};
inline constexpr int kMetrics = static_cast<int>(MetricId::kServerMostFiles) + 1;

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_METRIC_ID_H_
