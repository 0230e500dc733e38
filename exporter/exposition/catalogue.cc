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
     "1 after the communicator was finalized. Its series stay for ten minutes, or until their "
     "space is needed."},
    {MetricId::kOperations, "nccl_operations_total", MetricType::Counter, "", kComm,
     LabelNames("op", "size", "datatype", "captured", "user_tag"),
     "Operations that the application called."},
    {MetricId::kOperationBytes, "nccl_operation_bytes_total", MetricType::Counter, "bytes", kComm,
     LabelNames("op", "size"),
     "Bytes of the called operations: count times element size, as passed."},
    {MetricId::kCompositeOperations, "nccl_composite_operations_total", MetricType::Counter, "",
     kComm, LabelNames("op", "size", "captured"),
     "AlltoAll, Gather and Scatter that the application called by name. NCCL made them of Send and "
     "Recv, which nccl_operations_total counts: do not add the two. size is that of one part. "
     "Gather and Scatter count on their root only."},
    {MetricId::kAlgorithmOperations, "nccl_algorithm_operations_total", MetricType::Counter, "",
     kComm, LabelNames("op", "algo", "proto"),
     "Operations by the algorithm and protocol that NCCL chose."},
    {MetricId::kLaunches, "nccl_launches_total", MetricType::Counter, "", kComm, LabelNames(),
     "Tracked launches: kernels, copy-engine collectives, and groups whose end replaces an "
     "unreported launch. One launch carries one operation, or several of a group."},
    {MetricId::kLaunchesCompleted, "nccl_launches_completed_total", MetricType::Counter, "", kComm,
     LabelNames(), "Tracked launches that have completed. Absent if unknown."},
    {MetricId::kInflightLaunches, "nccl_inflight_launches", MetricType::Gauge, "", kComm,
     LabelNames(),
     "Tracked launches that had not completed at the background thread's last poll. Absent if "
     "unknown: see nccl_state_unknown."},
    {MetricId::kOldestInflightLaunch, "nccl_oldest_inflight_launch_timestamp_seconds",
     MetricType::Gauge, "seconds", kComm, LabelNames(),
     "When the oldest unfinished launch was made, within about 20 ms; 0 if none is in flight. "
     "Absent if unknown: see nccl_state_unknown."},
    {MetricId::kOldestInflightOperation, "nccl_oldest_inflight_operation_timestamp_seconds",
     MetricType::Gauge, "seconds", kComm, LabelNames("source"),
     "When the oldest operation in flight was enqueued; 0 if none is. Only without CUDA events "
     "behind launches. source proxy: its network operations have started and not all stopped; "
     "kernel: not all its channels have stopped. Absent until an operation has ended."},
    {MetricId::kActivityQueued, "nccl_work_queued", MetricType::Gauge, "", kComm, LabelNames(),
     "1 while no GPU of the node has begun its oldest launch on the communicator, for longer than "
     "NCCL_PULSE_HANG_SECONDS: earlier work has not ended."},
    {MetricId::kActivityUnknown, "nccl_state_unknown", MetricType::Gauge, "", kComm,
     LabelNames("reason"),
     "1 while it is unknown whether the rank is idle, by reason (see detection.md)."},
    {MetricId::kDriverError, "nccl_driver_error_timestamp_seconds", MetricType::Gauge, "seconds",
     kComm, LabelNames("error"),
     "When the CUDA driver first returned an error from which the GPU's context does not recover, "
     "within a second. Absent before."},
    {MetricId::kLongestWait, "nccl_longest_wait_seconds", MetricType::Gauge, "seconds", kComm,
     LabelNames("op", "size"),
     "The longest time without progress after which work resumed, by operation and size. Later "
     "waits are compared with it for a while. Absent below 5 s."},
    {MetricId::kCaptured, "nccl_communicator_uses_cuda_graphs", MetricType::Gauge, "", kComm,
     LabelNames(), "1 if operations of the communicator were captured into a CUDA graph."},
    {MetricId::kGraphReplays, "nccl_graph_replays_total", MetricType::Counter, "", kComm,
     LabelNames(),
     "Replays of CUDA graphs of more than 20 launches with operations of the communicator."},
    {MetricId::kGraphReplaysInFlight, "nccl_graph_inflight_replays", MetricType::Gauge, "", kComm,
     LabelNames(), "Replays that have passed the first stamp of their graph and not its last."},
    {MetricId::kGraphProgress, "nccl_graph_last_progress_timestamp_seconds", MetricType::Gauge,
     "seconds", kComm, LabelNames(), "When a replay last passed a stamp, within 0.1 s."},
    {MetricId::kGraphOperations, "nccl_graph_operations_total", MetricType::Counter, "", kComm,
     LabelNames("op", "size"),
     "Operations that replays of CUDA graphs executed: captured operations times replays. All "
     "executed operations are this and nccl_operations_total with captured=\"false\"."},
    {MetricId::kGraphOperationBytes, "nccl_graph_operation_bytes_total", MetricType::Counter,
     "bytes", kComm, LabelNames("op", "size"),
     "Bytes of those operations, as nccl_operation_bytes_total counts them."},
    {MetricId::kWorkOperations, "nccl_graph_finished_operations_total", MetricType::Counter, "",
     kComm, LabelNames("op", "size"),
     "Collectives that replays of CUDA graphs of any length have finished, by NCCL's own counter "
     "(see work-counters.md). op and size are several where calls of several were captured. Absent "
     "unless the counter is proven and each launch carries one collective."},
    {MetricId::kWorkProgress, "nccl_work_last_progress_timestamp_seconds", MetricType::Gauge,
     "seconds", kComm, LabelNames(),
     "When NCCL's own counter last moved, within 0.1 s. Absent unless calls were captured and the "
     "counter is proven."},
    {MetricId::kOperationDuration, "nccl_operation_duration_seconds", MetricType::Histogram,
     "seconds", kComm, LabelNames("op", "size", "timing", "user_tag"),
     "Duration of timed operations, by timing. stream: CUDA events around a sample of the "
     "launches, including about 6 us of launch latency. kernel: GPU timestamps. network: from the "
     "first network step that moved data to the end of the last proxy operation, for a share of "
     "the time. graph: stamps around some launches of CUDA graphs, including 1 to 3 us. "
     "See timing.md."},
    {MetricId::kOperationCompletion, "nccl_operation_completion_seconds", MetricType::Histogram,
     "seconds", kComm, LabelNames("op", "size", "source"),
     "Time from the enqueue of an operation to its estimated end. It includes waiting for earlier "
     "work of the GPU, so do not compute a bandwidth from it."},
    {MetricId::kTimedBusBytes, "nccl_timed_bus_bytes_total", MetricType::Counter, "bytes", kComm,
     LabelNames("op", "size", "timing", "user_tag"),
     "Bytes of timed operations, times the bus bandwidth factor of nccl-tests. Divide its rate by "
     "the rate of the durations' sum to get the bus bandwidth."},
    {MetricId::kUntimedOperations, "nccl_operations_without_duration_total", MetricType::Counter,
     "", kComm, LabelNames("op", "reason"),
     "Operations that have no duration, by reason. unreported: NCCL reports only the call, and it "
     "was not followed alone."},
    {MetricId::kUncompletedOperations, "nccl_operations_without_completion_total",
     MetricType::Counter, "", kComm, LabelNames("op"),
     "Operations with network or kernel activity whose end was not reported."},
    {MetricId::kStragglerSeconds, "nccl_straggler_seconds_total", MetricType::Counter, "seconds",
     kComm, LabelNames(),
     "How long the other ranks of this node waited for this rank: their mean wait in each "
     "collective at which it arrived last, scaled from timed calls to all calls. Not counted while "
     "the rank itself waits for another rank. Restarts at 0 with another server."},
    {MetricId::kLastLaunchTimestamp, "nccl_last_launch_timestamp_seconds", MetricType::Gauge,
     "seconds", kComm, LabelNames(),
     "When the last tracked launch was made; absent before the first."},
    {MetricId::kLastCompletionTimestamp, "nccl_last_completion_timestamp_seconds",
     MetricType::Gauge, "seconds", kComm, LabelNames(),
     "When the last completed operation ended; absent before the first."},
    {MetricId::kNetworkBytes, "nccl_network_bytes_total", MetricType::Counter, "bytes", kComm,
     LabelNames("direction"),
     "Bytes that watched network steps moved, including the protocol's. Steps are watched for a "
     "share of the time (NCCL_PULSE_NETWORK_WINDOW): divide the rate by that of "
     "nccl_pulse_network_observed_seconds_total."},
    {MetricId::kNetworkWait, "nccl_network_wait_seconds_total", MetricType::Counter, "seconds",
     kComm, LabelNames("direction", "reason"),
     "What watched network steps waited for. gpu: the GPU produces or consumes the data; peer: the "
     "receiver gives credit; wire: the data is sent, or arrives; flush: the data becomes visible "
     "to the GPU. Steps overlap, so compare shares, not seconds."},
    {MetricId::kKernelTimingUntrusted, "nccl_pulse_kernel_timing_untrusted", MetricType::Gauge, "",
     kComm, LabelNames("reason"),
     "1 if the requested GPU timestamps of the communicator are not used, by reason."},
    {MetricId::kOverflowedOperations, "nccl_pulse_overflowed_operations_total", MetricType::Counter,
     "", kComm, LabelNames(),
     "Operations without a series of their own: they count with size=\"overflow\", and without "
     "memory only as calls."},
    {MetricId::kBuildInfo, "nccl_pulse_build_info", MetricType::Gauge, "", kProcess,
     LabelNames("version", "nccl_api_version", "timing", "durations", "completions", "event_mask",
                "memory"),
     "The plugin's version, and what it uses in this process; always 1."},
    {MetricId::kProcessUp, "nccl_pulse_process_up", MetricType::Gauge, "", kProcess, LabelNames(),
     "1 while the process lives; 0 while an agent keeps the last state of an ended process."},
    {MetricId::kProcessEnd, "nccl_pulse_process_end_timestamp_seconds", MetricType::Gauge,
     "seconds", kProcess, LabelNames("end"),
     "When the process ended, and how; absent while it lives."},
    {MetricId::kStartTimestamp, "nccl_pulse_start_timestamp_seconds", MetricType::Gauge, "seconds",
     kProcess, LabelNames(), "When the plugin started in this process."},
    {MetricId::kLastPollTimestamp, "nccl_pulse_last_poll_timestamp_seconds", MetricType::Gauge,
     "seconds", kProcess, LabelNames(),
     "When the plugin's background thread last ran. If it stops, its measurements also stop."},
    {MetricId::kProcessState, "nccl_pulse_process_state", MetricType::Gauge, "", kProcess,
     LabelNames("state"),
     "1 while the plugin's background thread has not run for 1 s, with the kernel's state of the "
     "process. Absent if the server cannot see the process."},
    {MetricId::kSamplingExponent, "nccl_pulse_sampling_ratio", MetricType::Gauge, "", kProcess,
     LabelNames(), "Share of the calls that are timed on their stream: 1, 0.5, 0.25 ..."},
    {MetricId::kEventMaskChanges, "nccl_pulse_event_mask_changes_total", MetricType::Counter, "",
     kProcess, LabelNames(),
     "Times that another program changed the plugin's event mask (RAS can, from NCCL 2.31): events "
     "may be missing."},
    {MetricId::kForeignEventMask, "nccl_pulse_foreign_event_mask_info", MetricType::Gauge, "",
     kProcess, LabelNames("event_mask"),
     "The event mask after the last change by another program; always 1."},
    {MetricId::kNetworkObserved, "nccl_pulse_network_observed_seconds_total", MetricType::Counter,
     "seconds", kProcess, LabelNames(), "How long network steps were watched."},
    {MetricId::kGraphCaptures, "nccl_pulse_graph_captures_total", MetricType::Counter, "", kProcess,
     LabelNames("fate"),
     "CUDA graphs into which operations were captured. seen: all. "
     "followed: replays are counted; most others have too few launches for a stamp. no_room: too "
     "many are followed. incomplete: some calls are not kept. refused: the driver refused a "
     "stamp."},
    {MetricId::kWorkCounters, "nccl_pulse_work_counters", MetricType::Gauge, "", kProcess,
     LabelNames("state", "reason"),
     "Communicators by the state of NCCL's own counter, and the reason of a refuted one (see "
     "work-counters.md)."},
    {MetricId::kCommands, "nccl_pulse_commands_total", MetricType::Counter, "", kProcess,
     LabelNames("result"), "Commands to the running process (`pulse set`)."},
    {MetricId::kSettingChanged, "nccl_pulse_setting_changed", MetricType::Gauge, "", kProcess,
     LabelNames("setting"), "1 while a setting that `pulse set` changed differs from the start."},
    {MetricId::kCallbacks, "nccl_pulse_callbacks_total", MetricType::Counter, "", kProcess,
     LabelNames("callback"), "Callbacks that NCCL made."},
    {MetricId::kCallbackDuration, "nccl_pulse_callback_duration_seconds", MetricType::Summary,
     "seconds", kProcess, LabelNames(), "How long a sample of the callbacks took."},
    {MetricId::kIgnoredEvents, "nccl_pulse_ignored_events_total", MetricType::Counter, "", kProcess,
     LabelNames("reason"), "Callbacks that could not be used, by reason."},
    {MetricId::kSeriesUsed, "nccl_pulse_series_used", MetricType::Gauge, "", kProcess, LabelNames(),
     "Series that hold measurements."},
    {MetricId::kSeriesLimit, "nccl_pulse_series_limit", MetricType::Gauge, "", kProcess,
     LabelNames(), "Limit of series, including overflow series."},
    {MetricId::kCommunicatorsUsed, "nccl_pulse_communicators_used", MetricType::Gauge, "", kProcess,
     LabelNames(), "Communicators that are held, including finalized ones."},
    {MetricId::kCommunicatorsLimit, "nccl_pulse_communicators_limit", MetricType::Gauge, "",
     kProcess, LabelNames(), "Limit of communicators; another one is not measured."},
    {MetricId::kRecycledCommunicators, "nccl_pulse_recycled_communicators_total",
     MetricType::Counter, "", kProcess, LabelNames(),
     "Finalized communicators that are no longer held."},
    {MetricId::kRecycledOperations, "nccl_pulse_recycled_operations_total", MetricType::Counter, "",
     kProcess, LabelNames("op"),
     "Operations on communicators that are no longer held. Add them to nccl_operations_total for "
     "all calls of the process."},
    {MetricId::kRecycledOperationBytes, "nccl_pulse_recycled_operation_bytes_total",
     MetricType::Counter, "bytes", kProcess, LabelNames("op"),
     "Bytes of those operations, as nccl_operation_bytes_total counts them."},
    {MetricId::kHangStart, "nccl_hang_start_timestamp_seconds", MetricType::Gauge, "seconds",
     kServer, LabelNames("comm", "verdict", "suspect_rank", "op"),
     "Since when a communicator is stalled with work in flight, or with calls that not all ranks "
     "have made, with the verdict over the ranks of this node. One series per suspect. Absent when "
     "no hang is suspected."},
    {MetricId::kHangUsual, "nccl_hang_expected", MetricType::Gauge, "", kServer, LabelNames("comm"),
     "1 while the suspected hang is an expected wait: it can end, and these ranks have waited "
     "about as long in this operation before, or wait for ranks that do so elsewhere."},
    {MetricId::kScrapeDuration, "nccl_pulse_scrape_duration_seconds", MetricType::Summary,
     "seconds", kServer, LabelNames(),
     "How long earlier responses of this endpoint took to render."},
    {MetricId::kProcesses, "nccl_pulse_processes", MetricType::Gauge, "", kServer, LabelNames(),
     "Processes in this response, including ended ones that an agent keeps."},
    {MetricId::kSegmentsRead, "nccl_pulse_segments_read_total", MetricType::Counter, "", kServer,
     LabelNames(),
     "Times that a process' segment was read for a response. Restarts at 0 with another server."},
    {MetricId::kSegmentsRejected, "nccl_pulse_processes_rejected_total", MetricType::Counter, "",
     kServer, LabelNames("reason"),
     "Processes, and connections to register one, that this server refused, by reason."},
    {MetricId::kServerStart, "process_start_time_seconds", MetricType::Gauge, "seconds", kServer,
     LabelNames(), "When the serving process started: an agent, or a process of a job."},
    {MetricId::kServerCpu, "process_cpu_seconds_total", MetricType::Counter, "seconds", kServer,
     LabelNames(), "CPU time of the serving process, including the job's own work in it."},
    {MetricId::kServerResident, "process_resident_memory_bytes", MetricType::Gauge, "bytes",
     kServer, LabelNames(), "Resident memory of the serving process."},
    {MetricId::kServerVirtual, "process_virtual_memory_bytes", MetricType::Gauge, "bytes", kServer,
     LabelNames(), "Virtual memory of the serving process."},
    {MetricId::kServerOpenFiles, "process_open_fds", MetricType::Gauge, "", kServer, LabelNames(),
     "Open file descriptors of the serving process."},
    {MetricId::kServerMostFiles, "process_max_fds", MetricType::Gauge, "", kServer, LabelNames(),
     "File descriptors that the serving process may open."},
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
