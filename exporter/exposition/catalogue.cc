#include "exporter/exposition/catalogue.h"

#include <algorithm>
#include <iterator>

#include "exporter/exposition/label_meanings.h"

namespace nccl_pulse {
namespace {

using prometheus::MetricType;

constexpr MetricScope kComm = MetricScope::kCommunicator;
constexpr MetricScope kProcess = MetricScope::kProcess;
constexpr MetricScope kServer = MetricScope::kServer;

constexpr std::array<MetricEntry, kMetrics> kCatalogue = {{
    {MetricId::kCommunicatorInfo, "nccl_communicator_info", MetricType::Gauge, "", kComm,
     LabelNames("comm_name", "nranks", "nnodes", "global_rank", "local_rank", "job_id", "index",
                "pid", "pid_namespace", "Hostname", "gpu", "UUID", "pci_bus_id"),
     "Identity of the communicator, to join on; always 1."},
    {MetricId::kCommunicatorFinalized, "nccl_communicator_finalized", MetricType::Gauge, "", kComm,
     LabelNames(),
     "1 once the communicator was finalized; its series stay for ten minutes, or until others need "
     "the room. Absent while it is in use."},
    {MetricId::kOperations, "nccl_operations_total", MetricType::Counter, "", kComm,
     LabelNames("op", "size", "datatype", "captured", "user_tag"),
     "Operations that the application called."},
    {MetricId::kOperationBytes, "nccl_operation_bytes_total", MetricType::Counter, "bytes", kComm,
     LabelNames("op", "size"),
     "Bytes of the operations that the application called: count times element size, as passed."},
    {MetricId::kCompositeOperations, "nccl_composite_operations_total", MetricType::Counter, "",
     kComm, LabelNames("op", "size", "captured"),
     "AlltoAll, Gather and Scatter that the application called by that name, and that NCCL made of "
     "Send and Recv: nccl_operations_total has those parts, and this metric is not to be added to "
     "it. size is that of one part. Gather and Scatter are counted on their root alone: elsewhere "
     "they are one Send or Recv. Present from the first on."},
    {MetricId::kAlgorithmOperations, "nccl_algorithm_operations_total", MetricType::Counter, "",
     kComm, LabelNames("op", "algo", "proto"),
     "Operations by the algorithm and protocol that NCCL chose."},
    {MetricId::kLaunches, "nccl_launches_total", MetricType::Counter, "", kComm, LabelNames(),
     "Launches that were visible: kernels, and copy-engine collectives; and, as one each, groups "
     "whose end tells of a launch that NCCL does not report. One launch carries one operation or "
     "several of a group."},
    {MetricId::kLaunchesCompleted, "nccl_launches_completed_total", MetricType::Counter, "", kComm,
     LabelNames(),
     "Visible launches that are known to have completed, from CUDA events behind them. Absent when "
     "that is not known."},
    {MetricId::kInflightLaunches, "nccl_inflight_launches", MetricType::Gauge, "", kComm,
     LabelNames(),
     "Visible launches that were not known to have completed when the background thread last "
     "looked. Absent when that is not known: see nccl_activity_unknown."},
    {MetricId::kOldestInflightLaunch, "nccl_oldest_inflight_launch_timestamp_seconds",
     MetricType::Gauge, "seconds", kComm, LabelNames(),
     "When the oldest unfinished launch was made, in Unix time, known to about 20 ms; 0 when none "
     "is in flight. Absent when that is not known: see nccl_activity_unknown."},
    {MetricId::kOldestInflightOperation, "nccl_oldest_inflight_operation_timestamp_seconds",
     MetricType::Gauge, "seconds", kComm, LabelNames("source"),
     "Where no CUDA events follow the launches: when the oldest operation that is known to be in "
     "flight was enqueued, in Unix time; 0 when none is. source proxy: its network operations have "
     "started and not all stopped, those without network traffic are not seen; kernel: not all its "
     "channels have stopped. Absent until an operation has been seen to end."},
    {MetricId::kActivityQueued, "nccl_activity_queued", MetricType::Gauge, "", kComm, LabelNames(),
     "1 while the rank's oldest launch is known not to have begun, and so is that of every rank of "
     "the node with work in flight on the communicator, for longer than a hang takes to be "
     "suspected: earlier work of these GPUs has not ended. Absent otherwise."},
    {MetricId::kActivityUnknown, "nccl_activity_unknown", MetricType::Gauge, "", kComm,
     LabelNames("reason"),
     "1 while it is not known whether the rank has work in flight or is idle, and why. "
     "launch_not_reported: it made calls of whose launch nothing tells, or not yet; "
     "captured: calls went into CUDA graphs; no_completions: nothing tells that work has ended; "
     "poller_not_started, poller_stands: the background thread does not run; poller_ended: the "
     "process is in exit(); driver_error: see nccl_driver_error_timestamp_seconds; "
     "event_mask_changed: somebody else switched events off. Absent while it is known."},
    {MetricId::kDriverError, "nccl_driver_error_timestamp_seconds", MetricType::Gauge, "seconds",
     kComm, LabelNames("error"),
     "When the CUDA driver first answered the plugin with an error from which the GPU's context "
     "does "
     "not recover, in Unix time, within a second. Absent while there was none."},
    {MetricId::kLongestWait, "nccl_longest_wait_seconds", MetricType::Gauge, "seconds", kComm,
     LabelNames("op", "size"),
     "The longest time that work of the rank made no progress and then went on, by the operation "
     "called last and its size. Later waits are compared with it while it counts (see "
     "hangs-and-stragglers.md). Absent below 5 s."},
    {MetricId::kCaptured, "nccl_communicator_captured", MetricType::Gauge, "", kComm, LabelNames(),
     "1 if operations of the communicator were captured into a CUDA graph, whose replays are "
     "counted and timed only by stamps (see graphs.md). Absent if none was."},
    {MetricId::kGraphReplays, "nccl_graph_replays_total", MetricType::Counter, "", kComm,
     LabelNames(),
     "Replays of CUDA graphs with operations of the communicator, as far as they are followed "
     "(NCCL_PULSE_GRAPHS=auto; see graphs.md): each time the first stamp of a graph was passed. "
     "Present from the first on."},
    {MetricId::kGraphReplaysInFlight, "nccl_graph_inflight_replays", MetricType::Gauge, "", kComm,
     LabelNames(),
     "Replays that have passed the first stamp of their graph and not its last. Present once there "
     "was a replay."},
    {MetricId::kGraphProgress, "nccl_graph_last_progress_timestamp_seconds", MetricType::Gauge,
     "seconds", kComm, LabelNames(),
     "When a replay was last seen to pass a stamp, in Unix time, within 0.1 s. With replays in "
     "flight: since when they make no progress. Present once there was a replay."},
    {MetricId::kGraphOperations, "nccl_graph_operations_total", MetricType::Counter, "", kComm,
     LabelNames("op", "size"),
     "Operations that replays of CUDA graphs executed: those captured, times the replays. The "
     "total that was executed is this and nccl_operations_total with captured=\"false\". Present "
     "from the first on."},
    {MetricId::kGraphOperationBytes, "nccl_graph_operation_bytes_total", MetricType::Counter,
     "bytes", kComm, LabelNames("op", "size"),
     "Bytes of those operations, as nccl_operation_bytes_total counts them."},
    {MetricId::kOperationDuration, "nccl_operation_duration_seconds", MetricType::Histogram,
     "seconds", kComm, LabelNames("op", "size", "timing", "user_tag"),
     "How long timed operations took; the timing label says how that was measured. stream: CUDA "
     "events around a sample of the launches, a constant of about 6 us (launch latency and the "
     "events) included. kernel: GPU timestamps. An operation counts either in these or in "
     "nccl_untimed_operations_total; op Grouped is launches whose operations count there, and so "
     "are "
     "AlltoAll, Gather and Scatter that are a launch (nccl_composite_operations_total). network, "
     "beside them: from the first network step that moved data to the end of the last proxy "
     "operation, for operations called while network steps were watched, a small share of the "
     "time; "
     "without classic buckets unless asked for. graph, in addition: stamps around some launches of "
     "CUDA graphs, for a sample of their replays, including a constant of 1 to 3 us (see "
     "graphs.md)."},
    {MetricId::kOperationCompletion, "nccl_operation_completion_seconds", MetricType::Histogram,
     "seconds", kComm, LabelNames("op", "size", "source"),
     "Time from enqueueing an operation to its estimated end. It includes waiting for earlier work "
     "of the GPU, so no bandwidth follows from it."},
    {MetricId::kTimedBusBytes, "nccl_timed_bus_bytes_total", MetricType::Counter, "bytes", kComm,
     LabelNames("op", "size", "timing", "user_tag"),
     "Bytes of the operations that have a duration on the stream, in the kernel or in a graph, by "
     "the bus bandwidth convention of nccl-tests: their rate over the rate of the durations' sum "
     "is the bus bandwidth."},
    {MetricId::kUntimedOperations, "nccl_untimed_operations_total", MetricType::Counter, "", kComm,
     LabelNames("op", "reason"),
     "Operations that have no duration, by reason. unreported: NCCL tells of the call alone, and "
     "it was not followed alone either."},
    {MetricId::kUncompletedOperations, "nccl_uncompleted_operations_total", MetricType::Counter, "",
     kComm, LabelNames("op"),
     "Operations that showed network or kernel activity but whose end was not seen."},
    {MetricId::kStragglerSeconds, "nccl_straggler_seconds_total", MetricType::Counter, "seconds",
     kComm, LabelNames(),
     "How long the other ranks of this node waited for this one: for each collective in which it "
     "came last the mean of their waiting, from calls that all of them timed, scaled to all calls. "
     "Not counted while the rank is known to wait for another one itself. "
     "It starts anew when another process becomes the server. See hangs-and-stragglers.md."},
    {MetricId::kAgreedCall, "nccl_agreed_call_id", MetricType::Gauge, "", kComm,
     LabelNames("timing"),
     "Which call nccl_agreed_call_duration_seconds is about: the same on all ranks that have timed "
     "it. Of every 30 s all ranks pick one alike, without a message; it stands here for the 30 s "
     "after. Of AllReduce, AllGather, ReduceScatter and AlltoAll, where ranks of the communicator "
     "are at other endpoints. See hangs-and-stragglers.md."},
    {MetricId::kAgreedCallDuration, "nccl_agreed_call_duration_seconds", MetricType::Gauge,
     "seconds", kComm, LabelNames("timing"),
     "How long that call took on this rank, the waiting for other ranks included: the rank with "
     "the shortest came last."},
    {MetricId::kLastLaunchTimestamp, "nccl_last_launch_timestamp_seconds", MetricType::Gauge,
     "seconds", kComm, LabelNames(),
     "When the last visible launch was, in Unix time; absent before the first."},
    {MetricId::kLastCompletionTimestamp, "nccl_last_completion_timestamp_seconds",
     MetricType::Gauge, "seconds", kComm, LabelNames(),
     "When the last operation known to be complete ended, in Unix time; absent before the first."},
    {MetricId::kNetworkBytes, "nccl_network_bytes_total", MetricType::Counter, "bytes", kComm,
     LabelNames("direction"),
     "Bytes that network steps moved, including those of the protocol, for operations called while "
     "steps "
     "were watched: a small share of the time, see NCCL_PULSE_NETWORK_WINDOW. The true rate is the "
     "rate of this over the rate of nccl_pulse_network_observed_seconds_total. Absent when none "
     "was "
     "seen."},
    {MetricId::kNetworkWait, "nccl_network_wait_seconds_total", MetricType::Counter, "seconds",
     kComm, LabelNames("direction", "reason"),
     "Where those network steps waited. gpu: for the GPU to produce or consume the data; peer: for "
     "the network to take it, which waits for the receiver; wire: for it to be sent, or to arrive; "
     "flush: for it to be visible to the GPU. Steps overlap, so a second can hold many seconds of "
     "waiting: compare shares. Absent when none was seen."},
    {MetricId::kKernelTimingUntrusted, "nccl_pulse_kernel_timing_untrusted", MetricType::Gauge, "",
     kComm, LabelNames("reason"),
     "1 if the communicator's GPU timestamps are not believed for this reason. Present only if "
     "they were asked for."},
    {MetricId::kOverflowedOperations, "nccl_pulse_overflowed_operations_total", MetricType::Counter,
     "", kComm, LabelNames(),
     "Times that an operation had no series of its own: beyond the limit it counts in one with "
     "size=\"overflow\"; without memory only calls count there. Present from the first on."},
    {MetricId::kBuildInfo, "nccl_pulse_build_info", MetricType::Gauge, "", kProcess,
     LabelNames("version", "nccl_api_version", "timing", "durations", "completions", "event_mask",
                "memory"),
     "The plugin's version and what it picked in this process; always 1."},
    {MetricId::kProcessUp, "nccl_pulse_process_up", MetricType::Gauge, "", kProcess, LabelNames(),
     "1 while the process lives; 0 once it has ended, if an agent keeps its last state."},
    {MetricId::kProcessEnd, "nccl_pulse_process_end_timestamp_seconds", MetricType::Gauge,
     "seconds", kProcess, LabelNames("end"),
     "When the process ended, in Unix time, and how; absent while it lives."},
    {MetricId::kStartTimestamp, "nccl_pulse_start_timestamp_seconds", MetricType::Gauge, "seconds",
     kProcess, LabelNames(), "When the plugin started in this process, in Unix time."},
    {MetricId::kLastPollTimestamp, "nccl_pulse_last_poll_timestamp_seconds", MetricType::Gauge,
     "seconds", kProcess, LabelNames(),
     "When the plugin's background thread last made a round, in Unix time. If that does not "
     "advance, neither does what the thread measures."},
    {MetricId::kProcessState, "nccl_pulse_process_state", MetricType::Gauge, "", kProcess,
     LabelNames("state"),
     "1 while the plugin's background thread stands for 5 s or more, with what the kernel says of "
     "the process. Absent otherwise, and where the server cannot see the process."},
    {MetricId::kSamplingExponent, "nccl_pulse_sampling_exponent", MetricType::Gauge, "", kProcess,
     LabelNames(),
     "n: one call in 2^n is timed on its stream, to keep the budget of timed launches. Absent "
     "without stream timing."},
    {MetricId::kEventMaskChanges, "nccl_pulse_event_mask_changes_total", MetricType::Counter, "",
     kProcess, LabelNames(),
     "Times that somebody else changed the event mask that the plugin gave NCCL (RAS can, from "
     "NCCL 2.31 on): events may be missing. Present from the first on."},
    {MetricId::kForeignEventMask, "nccl_pulse_foreign_event_mask_info", MetricType::Gauge, "",
     kProcess, LabelNames("event_mask"),
     "The event mask after the last change by somebody else; always 1. Absent if there was none."},
    {MetricId::kNetworkObserved, "nccl_pulse_network_observed_seconds_total", MetricType::Counter,
     "seconds", kProcess, LabelNames(),
     "How long network steps were watched: rates of nccl_network_* are true when divided by the "
     "rate of this. Absent when they never were."},
    {MetricId::kGraphCaptures, "nccl_pulse_graph_captures_total", MetricType::Counter, "", kProcess,
     LabelNames("fate"),
     "CUDA graphs into which operations were captured, if graphs are followed. seen: all. "
     "followed: their replays are counted; most of the others have too few launches for a stamp. "
     "no_room: their replays are not counted, because too many are followed. incomplete: some of "
     "their calls are not kept. refused: the driver refused a stamp, and there are no further "
     "ones. Present from the first on."},
    {MetricId::kCommands, "nccl_pulse_commands_total", MetricType::Counter, "", kProcess,
     LabelNames("result"),
     "Commands that were given to the process while it runs (`pulse set`). Present from the first "
     "on."},
    {MetricId::kSettingChanged, "nccl_pulse_setting_changed", MetricType::Gauge, "", kProcess,
     LabelNames("setting"),
     "1 while a setting is not what the process started with: `pulse set` has changed it. Absent "
     "otherwise."},
    {MetricId::kCallbacks, "nccl_pulse_callbacks_total", MetricType::Counter, "", kProcess,
     LabelNames("callback"), "Callbacks that NCCL made. A kind is present from its first on."},
    {MetricId::kCallbackDuration, "nccl_pulse_callback_duration_seconds", MetricType::Summary,
     "seconds", kProcess, LabelNames(), "How long a sample of the callbacks took."},
    {MetricId::kIgnoredEvents, "nccl_pulse_ignored_events_total", MetricType::Counter, "", kProcess,
     LabelNames("reason"),
     "Callbacks that could not be used, by reason. A reason is present from its first on."},
    {MetricId::kSeriesUsed, "nccl_pulse_series_used", MetricType::Gauge, "", kProcess, LabelNames(),
     "Series that hold measurements."},
    {MetricId::kSeriesLimit, "nccl_pulse_series_limit", MetricType::Gauge, "", kProcess,
     LabelNames(),
     "Series that can be held, including overflow series; beyond it operations count in those."},
    {MetricId::kCommunicatorsUsed, "nccl_pulse_communicators_used", MetricType::Gauge, "", kProcess,
     LabelNames(), "Communicators that are held, including finalized ones that are still shown."},
    {MetricId::kCommunicatorsLimit, "nccl_pulse_communicators_limit", MetricType::Gauge, "",
     kProcess, LabelNames(),
     "Communicators that can be held; beyond it a new one is not measured."},
    {MetricId::kRecycledCommunicators, "nccl_pulse_recycled_communicators_total",
     MetricType::Counter, "", kProcess, LabelNames(),
     "Finalized communicators that are no longer held: their ten minutes were over, or others "
     "needed the room. Present from the first on."},
    {MetricId::kRecycledOperations, "nccl_pulse_recycled_operations_total", MetricType::Counter, "",
     kProcess, LabelNames("op"),
     "Operations that the application called on communicators that are no longer held. With "
     "nccl_operations_total they are all calls of the process."},
    {MetricId::kRecycledOperationBytes, "nccl_pulse_recycled_operation_bytes_total",
     MetricType::Counter, "bytes", kProcess, LabelNames("op"),
     "Bytes of those operations, as nccl_operation_bytes_total counts them."},
    {MetricId::kHangStart, "nccl_hang_start_timestamp_seconds", MetricType::Gauge, "seconds",
     kServer, LabelNames("comm", "verdict", "suspect_rank", "op"),
     "Since when a communicator makes no progress with work in flight, or with calls that not all "
     "ranks have made, in Unix time, and what the ranks of this node say about it; one series for "
     "each rank that the others wait for. Absent when no hang is suspected. See "
     "hangs-and-stragglers.md."},
    {MetricId::kHangUsual, "nccl_hang_usual", MetricType::Gauge, "", kServer, LabelNames("comm"),
     "1 while the suspected hang can end well, and the ranks of this node have waited about as "
     "long in this operation before and gone on, or wait for ranks that wait so elsewhere. Absent "
     "otherwise. See hangs-and-stragglers.md."},
    {MetricId::kScrapeDuration, "nccl_pulse_scrape_duration_seconds", MetricType::Summary,
     "seconds", kServer, LabelNames(), "How long earlier pages of this endpoint took to make."},
    {MetricId::kProcesses, "nccl_pulse_processes", MetricType::Gauge, "", kServer, LabelNames(),
     "Processes whose measurements are on this page, including ended ones that an agent keeps."},
    {MetricId::kSegmentsRead, "nccl_pulse_segments_read_total", MetricType::Counter, "", kServer,
     LabelNames(),
     "Times that a process' segment was read for a page. It starts anew when another process "
     "becomes the server."},
    {MetricId::kSegmentsRejected, "nccl_pulse_segments_rejected_total", MetricType::Counter, "",
     kServer, LabelNames("reason"),
     "Segments, and connections to hand one over, that this server refused, by reason. A reason is "
     "present from its first on."},
}};

constexpr bool InOrder() {
  for (int i = 0; i < kMetrics; ++i) {
    if (static_cast<int>(kCatalogue[i].id) != i) return false;
  }
  return true;
}
static_assert(InOrder(), "entries must be in the order of MetricId");

constexpr bool EveryLabelIsExplained() {
  for (const MetricEntry& entry : kCatalogue) {
    for (std::string_view name : entry.labels) {
      bool found = false;
      for (const LabelEntry& label : kLabels) found = found || label.name == name;
      if (!found) return false;
    }
  }
  return true;
}
static_assert(EveryLabelIsExplained(), "a label lacks its meaning in kLabels");

}  // namespace

std::string_view MetricTypeName(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Summary:
      return "summary";
    case MetricType::Histogram:
      return "histogram";
    case MetricType::Untyped:
      break;
  }
  return "untyped";
}

const MetricEntry& CatalogueEntry(MetricId id) { return kCatalogue[static_cast<std::size_t>(id)]; }

LabelNames ScopeLabels(MetricScope scope) {
  switch (scope) {
    case MetricScope::kCommunicator:
      return LabelNames("comm", "rank");
    case MetricScope::kProcess:
      return LabelNames("pid", "pid_namespace", "global_rank");
    case MetricScope::kServer:
      break;
  }
  return LabelNames();
}

bool IsReservedLabel(std::string_view name) {
  if (name == "le" || name == "quantile") return true;
  return std::any_of(std::begin(kLabels), std::end(kLabels),
                     [name](const LabelEntry& label) { return label.name == name; });
}

}  // namespace nccl_pulse
