// What a reader gets: one process' measurements as plain values.
//
// A snapshot is the only way from a segment to people. The process' own HTTP endpoint reads its
// segment through one too, so it shows what any other process would read. Strings are valid UTF-8
// without control characters, whatever the segment held.
//
// Thread: plain data, no sharing.
#ifndef METRICS_SNAPSHOT_H_
#define METRICS_SNAPSHOT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metrics/graph_place.h"
#include "metrics/histogram_geometry.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

// A latency histogram. Its count is the sum of its cells: there is no separate number to disagree.
struct HistogramSnapshot {
  std::array<uint64_t, kHistogramCells> cells{};
  uint64_t sum_ns = 0;

  uint64_t Count() const {
    uint64_t count = 0;
    for (uint64_t cell : cells) count += cell;
    return count;
  }

  HistogramSnapshot& operator+=(const HistogramSnapshot& other) {
    for (std::size_t cell = 0; cell < cells.size(); ++cell) cells[cell] += other.cells[cell];
    sum_ns += other.sum_ns;
    return *this;
  }
};

struct CallCountSnapshot {  // nccl_operations_total, nccl_operation_bytes_total
  std::string op;
  int size_class = 0;
  std::string datatype;
  bool captured = false;
  uint64_t calls = 0;
  uint64_t bytes = 0;
  std::string user_tag = {};  // "" where it has none
};

// NCCL's own counter of finished work on a communicator (plugin/cuda/work_proof.h).
struct WorkSnapshot {
  WorkState state{};
  WorkRefutal refutal{};  // why, if the state is kRefuted
  // The four below have a meaning with kProven, and where calls were captured. `operations`:
  // collectives that replays of graphs executed. Then when the counter was last seen to move, and
  // how long it stood at most before it moved again.
  bool are_operations_known = false;
  uint64_t operations = 0;
  int64_t moved_realtime_ns = 0;
  uint64_t longest_pause_ns = 0;
  // The segment does not have it. If the counter stands, the server of the node asks the driver
  // what the GPU has done since then.
  GpuUse gpu_use{};
};

struct CompositeSnapshot {  // nccl_composite_operations_total
  std::string op;
  int size_class = 0;
  bool captured = false;
  uint64_t operations = 0;
};

struct ReplayedCallsSnapshot {  // nccl_graph_operations_total, nccl_graph_operation_bytes_total
  std::string op;
  int size_class = 0;
  uint64_t operations = 0;
  uint64_t bytes = 0;
};

struct AlgorithmCountSnapshot {  // nccl_algorithm_operations_total
  std::string op, algo, proto;
  uint64_t operations = 0;
};

struct LatencySnapshot {
  LatencyKind kind{};
  std::string op;
  int size_class = 0;
  HistogramSnapshot histogram;
  uint64_t bytes = 0;         // of the timed operations
  uint64_t bus_bytes = 0;     // the same by nccl-tests' bus bandwidth convention
  std::string user_tag = {};  // "" where it has none
};

// It says how many calls of a kind were timed, and how long they took together without the longest
// ones (mean_lateness.h).
struct UsualDurationSnapshot {
  LatencyKind kind{};
  std::string op;
  int size_class = 0;
  uint64_t calls = 0;
  uint64_t ns = 0;
};

struct UntimedSnapshot {  // nccl_operations_without_duration_total
  std::string op;
  UntimedReason reason{};
  uint64_t operations = 0;
};

// NCCL reported these calls without the operation that other calls of their kind have. They failed
// or were estimated (ncclGroupSimulateEnd), and have launched nothing.
struct AbandonedCallsSnapshot {
  std::string op;
  uint64_t calls = 0;
};

struct UncompletedSnapshot {  // operations with network or kernel activity whose end was not seen
  std::string op;
  uint64_t operations = 0;
};

struct SequenceSnapshot {  // NCCL's number of the last operation; the JSON has it
  std::string op;
  uint64_t sequence = 0;
};

// One of the last timed calls of a communicator.
struct TimedCallSnapshot {
  std::string op;
  LatencyKind kind{};
  int size_class = 0;
  uint64_t bytes = 0;
  // It is the n-th operation of this op on the communicator (seqNumber for collectives). For
  // kDurationGraph it is the n-th replay.
  uint64_t call_number = 0;
  uint64_t duration_ns = 0;
  int64_t end_realtime_ns = 0;
  uint32_t graph = 0;  // kDurationGraph: the graph's number, modulo 256
};

// One of the last calls of a communicator, timed or not.
struct LastCallSnapshot {
  uint64_t number = 0;             // on its communicator, from 1
  uint64_t collective_number = 0;  // among the collectives, from 1; 0: Send or Recv
  std::string op, datatype;
  uint64_t bytes = 0;
  bool captured = false;     // into a CUDA graph: it is launched with that
  bool is_of_group = false;  // of the same group as the call before
  uint32_t stream_tag = 0;   // tells streams of one process apart, nearly always; 0: default
  int32_t root = -1;         // if the operation has one; -1: not known
  // Send and Recv have one; -1: not known. If a group has several calls of one kind, the peer may
  // belong to another of them.
  int32_t peer = -1;
  // It is the n-th of its operation and size class, from 0. A duration on the stream has the same
  // number as TimedCallSnapshot::call_number.
  std::optional<uint32_t> kind_number;
  int64_t launch_realtime_ns = 0;  // to about a microsecond; 0: not known
  uint64_t launch = 0;             // number among the launches of the communicator, from 1
};

// The last collectives of a communicator in the order of their calls. All ranks must have the same
// order. It is small enough to be sent; call_order.h makes it.
struct CallOrderSnapshot {
  struct Kind {
    std::string op, datatype;
    uint64_t bytes = 0;
    bool is_unlaunched = false;  // NCCL reported no launch of it, and others were called behind it
    int32_t root = -1;           // Broadcast and Reduce have one; -1: not known
  };
  static constexpr std::size_t kMostKinds = 127;
  static constexpr std::size_t kMostCalls = 512;  // no ring has more
  static constexpr uint8_t kKind = 0x7f;          // bits of a call: index into `kinds`
  static constexpr uint8_t kSameGroup = 0x80;     // it is of the same group as the one before

  uint32_t first = 0;      // number of the oldest among the collectives of its communicator, from 1
  uint32_t in_flight = 0;  // number of the oldest that is known not to have completed; 0: none is
  std::vector<Kind> kinds;
  std::string calls;  // a byte for each, oldest first; "": they are not known, or not asked for
};

// The ranks that a rank sends to and receives from in its launches in flight. peers.h makes it.
struct PeersSnapshot {
  std::vector<uint64_t> sends_to, receives_from;  // ranks in order, without itself
  bool are_known = false;                         // these are all
  // The GPU is in a launch that is one Send to this rank, and known not to be complete. Else -1.
  int32_t is_sending_to = -1;
};

// The longest pause of a communicator's work that ended (long_wait.h).
struct LongestWaitSnapshot {
  std::string op;  // what was called last meanwhile, and its size class
  int size_class = 0;
  uint64_t longest_ns = 0;
  int64_t counts_until_realtime_ns = 0;  // until then it measures waits that begin
};

struct CommunicatorSnapshot {
  // Identity.
  uint64_t comm_id = 0;
  std::string name;
  int32_t rank = 0, nranks = 0, nnodes = 0;
  uint32_t index = 0;      // n-th communicator of the process
  std::string gpu;         // device ordinal as the process sees it, "" when unknown
  std::string uuid;        // "GPU-xxxxxxxx-...", "" when unknown
  std::string pci_bus_id;  // "00000000:18:00.0" (dcgm-exporter's spelling), "" when unknown
  bool finalized = false;
  int64_t init_realtime_ns = 0;
  TrustState kernel_trust{};

  std::vector<CallCountSnapshot> calls;
  std::vector<CompositeSnapshot> composites;    // of Send and Recv, which `calls` has
  std::vector<ReplayedCallsSnapshot> replayed;  // by graphs
  std::vector<AlgorithmCountSnapshot> algorithms;
  std::vector<LatencySnapshot> latencies;
  // The segment does not have them. They replace the latencies if another process made them.
  std::vector<UsualDurationSnapshot> usual_durations;
  std::vector<UntimedSnapshot> untimed;
  // The segment does not have them. They replace `untimed` if another process counted them.
  std::vector<AbandonedCallsSnapshot> abandoned_calls;
  std::vector<UncompletedSnapshot> uncompleted;
  std::vector<SequenceSnapshot> sequences;
  std::vector<TimedCallSnapshot> timed_calls;  // oldest first
  // Older ones that all ranks picked, one for each second (agreed_call.h).
  std::vector<TimedCallSnapshot> picked_calls;  // oldest first
  // Oldest first; null: they were not asked for (ReadWish), or there is no ring.
  std::shared_ptr<const std::vector<LastCallSnapshot>> last_calls;
  uint32_t last_calls_kept = 0;  // room in its ring, 0: it has none
  CallOrderSnapshot call_order;  // where it was asked for (ReadWish)
  PeersSnapshot peers;           // where they were asked for (ReadWish)

  // The application's last call. It is "" before the first call, without callbacks for calls, and
  // while several threads call.
  std::string last_call_op;
  int last_call_size_class = 0;

  uint64_t launches = 0;  // visible kernel launches
  // CUDA events behind the launches are the heartbeat. Without one (no driver, API before v5, the
  // driver failed) has_heartbeat is false and the four below mean nothing.
  bool has_heartbeat = false;
  uint64_t launches_completed = 0;
  int64_t oldest_inflight_realtime_ns = 0;  // launch of the oldest one, 0: none in flight
  OldestLaunch oldest_launch{};  // asked when nothing has completed for a tenth of a second
  bool is_at_oldest = false;     // of kBegun: that launch is known not to be complete
  // Without a heartbeat, these say what tells that operations end (kNone: nothing does), and when
  // the oldest operation that is known to be in flight was enqueued, 0: none.
  CompletionSource operations_source = CompletionSource::kNone;
  int64_t oldest_operation_realtime_ns = 0;
  bool captured = false;  // calls were captured into a CUDA graph: its replays cannot be seen
  // These count over the followed graphs that have calls of this communicator: replays that began,
  // replays among them that have not passed their last stamp, and when one was last seen to move,
  // 0: never.
  uint64_t graph_replays = 0;
  uint64_t graph_replays_in_flight = 0;
  int64_t graph_moved_realtime_ns = 0;
  GraphPlace graph_place;
  WorkSnapshot work;
  int64_t last_launch_realtime_ns = 0;      // 0: none yet
  int64_t last_completion_realtime_ns = 0;  // 0: none yet
  uint64_t overflowed_operations = 0;  // counted in overflow series because the budget was spent
  uint64_t overflowed_calls = 0;       // calls among them; `calls` lacks their operations

  int32_t nccl_api_version = 0;  // the NCCL that made the communicator has it
  uint32_t event_mask = 0;       // this NCCL was given it
  // Calls since the last launch that NCCL reported: their launches are not visible, or have not
  // been made. Then the time at which the background thread first saw that, 0: there are none.
  uint64_t unreported_calls = 0;
  bool are_unreported_in_group = false;  // NCCL is known not to have ended the last one's group
  int64_t unreported_since_realtime_ns = 0;
  std::vector<LongestWaitSnapshot> longest_waits;
  // The first error of the GPU's driver from which the context does not recover (driver_error.h),
  // 0: none was seen. Then the time at which it was seen.
  uint32_t driver_error = 0;
  int64_t driver_error_realtime_ns = 0;

  // They count network steps that were watched; all zero: none was.
  std::array<uint64_t, kNetworkDirections> network_bytes{};
  std::array<uint64_t, kNetworkWaits> network_wait_ns{};
  int64_t network_moved_realtime_ns = 0;  // when such a step ended last, 0: none has
};

// Calls by communicators that are no longer shown.
struct RecycledCallsSnapshot {
  std::string op;
  uint64_t calls = 0;
  uint64_t bytes = 0;
};

// A reader asks for this besides the content of every page.
struct ReadWish {
  enum class LastCalls { kNone, kOfOne, kOfUnfinished };
  LastCalls last_calls = LastCalls::kNone;
  uint64_t comm_id = 0;  // kOfOne: that one
  // If work in flight has not progressed since this time, its communicator's order of calls and
  // peers are read; 0: they are not read.
  int64_t order_of_standing_since_ns = 0;
};

// It says how many calls a process made during some time, and how long its streams were in calls
// meanwhile. A call includes its wait for other ranks. pace_history.h makes it.
struct PaceWindow {
  uint64_t length_ms = 0;
  uint64_t collectives = 0;  // that were called
  uint64_t others = 0;       // Send and Recv
  uint64_t inside_ms = 0;    // the streams spent it in calls; estimated from the timed calls
  // Standard error of the time outside, for as many calls, from the windows that it consists of.
  uint64_t error_ms = 0;
};

inline constexpr std::size_t kPaceWindows = 3;

// How a process ended, as far as a reader can know (label `end` of
// nccl_pulse_process_end_timestamp_seconds).
enum class ProcessEnd : uint8_t {
  kLive = 0,
  kExit = 1,  // it said goodbye, or had finalized all of its communicators
  kLost = 2,  // neither: killed, crashed, or left by _exit in the middle of its work
};
const char* ProcessEndName(ProcessEnd end);

// If a process' background thread stands, the server of its node reads the process' state in /proc
// (label `state` of nccl_pulse_process_state).
enum class RunState : uint8_t {
  kUnknown = 0,          // it was not asked, or cannot be seen from there
  kRunning = 1,          // it runs, or sleeps until something wakes it
  kStopped = 2,          // T: by a signal
  kTraced = 3,           // t: by a debugger
  kUninterruptible = 4,  // D: it is in a system call that no signal ends (a driver's, or I/O)
  kDumpingCore = 5,      // it has crashed
  kEnded = 6,            // Z: it waits to be reaped, or it is gone
};
const char* RunStateName(RunState state);

struct ProcessSnapshot {
  int32_t pid = 0;
  uint32_t pid_namespace = 0;  // its inode; 0: the system's own, or unknown
  std::string plugin_version;
  std::string hostname;
  std::string global_rank, local_rank, job_id;  // "" when the launcher did not say
  int32_t nccl_api_version = 0;                 // 1..7: the ncclProfiler_vN that NCCL picked
  std::string static_labels;                    // the user's, "name=value,name=value"
  std::string nccl_environment;                 // "NCCL=2.28.9 NCCL_IB_HCA=mlx5_0"; "": not known
  std::string timing;                           // "auto", "kernel" or "off"
  uint32_t event_mask = 0;
  std::string duration_source;     // what times operations: "stream", "kernel" or "none"
  std::string completion_source;   // what tells their end: "stream", "proxy", "kernel" or "none"
  int32_t sampling_exponent = -1;  // one call in 2^n is timed on the stream; -1: no stream timing
  int64_t start_realtime_ns = 0;
  int64_t last_poll_realtime_ns = 0;  // when the background thread last went round
  uint64_t counters_read_ns = 0;      // when "pulse-work" did, monotonic; 0: there is none
  PollerState poller{};
  uint32_t foreign_event_mask = 0;  // events that all masks changed by somebody else have; 0: none
  uint64_t event_mask_changes = 0;  // how often
  bool shared_memory = false;  // false: memfd or its seals were refused, private memory is used

  std::array<uint64_t, kCallbackKinds> callbacks{};
  uint64_t network_observed_ns = 0;  // how long network steps have been watched, 0: never
  uint64_t sampled_callbacks = 0;    // callbacks whose cost was measured ...
  uint64_t sampled_callback_ns = 0;  // ... and what they took together
  std::array<uint64_t, kIgnoredReasons> ignored{};
  uint64_t series_used = 0, series_limit = 0;
  uint32_t last_calls_wanted = 0;  // that each communicator is to keep, a setting
  // Communicators whose place or series were used again, and their calls. Together with `calls` of
  // the shown communicators these are the process' totals.
  uint64_t recycled_communicators = 0;
  std::vector<RecycledCallsSnapshot> recycled_calls;  // without zeros
  uint64_t communicators_used = 0, communicator_limit = 0;
  std::array<uint64_t, kCaptureFates> graph_captures{};
  std::array<uint64_t, kCommandResults> commands{};
  uint32_t changed_settings = 0;  // bit n: LiveSetting n is not what the process started with

  std::vector<CommunicatorSnapshot> communicators;

  // The segment has none of what follows.
  // The server of its node reads it while the background thread stands.
  RunState run_state{};
  // A server that keeps the last state of an ended process sets these.
  ProcessEnd end{};
  int64_t end_realtime_ns = 0;
  // A reader of many endpoints sets it where the process' endpoint no longer answers: the time until
  // which the rest is known; 0: until now.
  int64_t heard_realtime_ns = 0;
  // It was read from a dump of PyTorch's Flight Recorder: neither host nor pid is known.
  bool is_of_dump = false;
  // It runs without the plugin: NCCL's RAS, NVML and /proc say all of this (exporter/outside). Its calls
  // are launches.
  bool is_from_outside = false;
  // The pid that the kernel tells the server of its node (0: the process is not seen from there),
  // and the PID namespace in which that pid counts.
  int32_t seen_pid = 0;
  uint32_t seen_in = 0;
  // The user ID that the kernel gave the server of its node at the hand-over (SO_PEERCRED); -1: not
  // known. A reader of another server's answer has that server's word for it.
  int64_t user = -1;
  // The shortest threshold of the endpoints that report it, for a verdict of many; 0: not known.
  int64_t hang_after_ns = 0;
  // A reader that reads repeatedly fills it: a window before the process became slower, one since
  // then, and the last kPaceWindows, oldest first. Empty: it has not become slower, or that is not
  // known.
  std::vector<PaceWindow> pace;
};

}  // namespace nccl_pulse

#endif  // METRICS_SNAPSHOT_H_
