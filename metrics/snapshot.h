// ProcessSnapshot holds one process' measurements as plain values, as a reader gets them.
//
// A snapshot is the only way out of a segment. The process' own HTTP endpoint reads its segment
// through one too, so it shows what any other process would read. Strings are valid UTF-8 without
// control characters, whatever the segment held.
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

#include "metrics/graph_position.h"
#include "metrics/histogram_geometry.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

// A latency histogram; the cells are drawn in histogram_geometry.h. There is no separate count that
// could disagree with them.
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

struct CallCountSnapshot {  // metrics nccl_operations_total, nccl_operation_bytes_total
  std::string op;
  int size_class = 0;
  std::string datatype;
  bool captured = false;
  uint64_t calls = 0;
  uint64_t bytes = 0;
  std::string user_tag = {};  // "" if none
};

// NCCL's own work counter on a communicator (plugin/cuda/work_proof.h).
struct WorkSnapshot {
  WorkState state{};
  WorkRefutal refutal{};  // the reason, if the state is kRefuted
  // The next four fields are valid if the state is kProven and calls were captured.
  bool are_operations_known = false;
  uint64_t operations = 0;        // collectives executed by replays, if are_operations_known
  int64_t moved_realtime_ns = 0;  // when the counter was last seen to move
  uint64_t longest_pause_ns = 0;  // longest time between two movements
  // Not from the segment: if the counter has stopped or is not known, the node's server asks NVML
  // how the GPU has been used meanwhile.
  GpuUse gpu_use{};
  // True if the first captured call is less than 10 s old, and the counter is neither proven nor
  // refuted yet.
  bool is_being_proven = false;
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
  uint64_t bus_bytes = 0;     // by nccl-tests' bus bandwidth convention
  std::string user_tag = {};  // "" if none
};

// Number of timed calls of an operation and size class (-1: all), and their total duration. Longer
// calls than usual are capped (mean_lateness.h).
struct UsualDurationSnapshot {
  LatencyKind kind{};
  std::string op;
  int size_class = 0;
  uint64_t calls = 0;
  uint64_t ns = 0;  // total duration
};

struct UntimedSnapshot {  // nccl_operations_without_duration_total
  std::string op;
  UntimedReason reason{};
  uint64_t operations = 0;
};

// Calls that launched nothing: they failed, or were only estimated (ncclGroupSimulateEnd). NCCL
// reported them, but not the operation event that follows other calls of the same operation.
struct AbandonedCallsSnapshot {
  std::string op;
  uint64_t calls = 0;
};

struct UncompletedSnapshot {  // operations with network or kernel activity but no observed end
  std::string op;
  uint64_t operations = 0;
};

struct SequenceSnapshot {  // NCCL's number of the last operation; JSON only
  std::string op;
  uint64_t sequence = 0;
};

// One of the last timed calls of a communicator.
struct TimedCallSnapshot {
  std::string op;
  LatencyKind kind{};
  int size_class = 0;
  uint64_t bytes = 0;
  uint64_t call_number = 0;  // identifies the call on all ranks: TimedCallFields (timed_call.h)
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
  bool captured = false;     // into a CUDA graph, which launches it
  bool is_of_group = false;  // in the same group as the previous call
  uint32_t stream_tag = 0;   // nearly unique per stream of the process; 0: default
  int32_t root = -1;         // -1: not known, or the operation has none
  // Peer of a Send or Recv; -1: not known. If a group has several calls of one kind, the peer may
  // be that of another call.
  int32_t peer = -1;
  // Number among calls of its operation and size class, from 0. Equals
  // TimedCallSnapshot::call_number of a duration on the stream.
  std::optional<uint32_t> kind_number;
  int64_t launch_realtime_ns = 0;  // when it was launched, to about 1 us; 0: not known
  uint64_t launch = 0;             // number among the launches of the communicator, from 1
};

// The last collectives of a communicator in call order, which must be the same on all ranks. Small
// enough to be sent to `pulse diagnose`. Made by CallOrderOf (call_order.h).
struct CallOrderSnapshot {
  // The properties in which calls must agree.
  struct Kind {
    std::string op, datatype;
    uint64_t bytes = 0;
    bool is_unlaunched = false;  // NCCL reported no launch of it, but later calls exist
    int32_t root = -1;           // of Broadcast and Reduce; -1: not known
  };
  static constexpr std::size_t kMostKinds = 127;
  static constexpr std::size_t kMostCalls = 512;  // no ring of last calls has more
  // Bits of a byte of `calls`.
  static constexpr uint8_t kKind = 0x7f;       // index into `kinds`
  static constexpr uint8_t kSameGroup = 0x80;  // in the same group as the previous call

  uint32_t first = 0;      // number of the oldest call among the communicator's collectives, from 1
  uint32_t in_flight = 0;  // number of the oldest call known to be incomplete; 0: none
  std::vector<Kind> kinds;
  std::string calls;  // one byte per call, oldest first; "": not known, or not requested
};

// Peers of a rank's launches in flight. Made by PeersOf (peers.h).
struct PeersSnapshot {
  std::vector<uint64_t> sends_to, receives_from;  // ranks in ascending order, without itself
  bool are_known = false;                         // the lists are complete
  // Peer of the oldest launch in flight if it is a single Send or Recv and may have begun; else -1.
  int32_t is_sending_to = -1, is_receiving_from = -1;
};

// A rank's Sends to one peer, or its Recvs from one (PeerCalls).
struct PeerCallsSnapshot {
  static constexpr std::size_t kMostPeers = 8;
  static constexpr uint64_t kBytesMask = (uint64_t{1} << 48) - 1;  // of sums of bytes

  int32_t peer = -1;
  bool receives = false;
  uint64_t calls = 0;
  // Bytes of all calls up to each of the last ones, by kBytesMask, oldest first; the last element
  // is for call number `calls`.
  std::vector<uint64_t> totals;
  std::string datatype;  // of these last calls; "": not known, or they differ
};

// The longest pause of a communicator's work that ended with progress, after one operation and size
// class (long_wait.h).
struct LongestWaitSnapshot {
  std::string op;      // the last call before the pause
  int size_class = 0;  // of that call
  uint64_t longest_ns = 0;
  int64_t counts_until_realtime_ns = 0;  // excuses pauses that begin before this time
};

struct CommunicatorSnapshot {
  // Identity.
  uint64_t comm_id = 0;
  std::string name;
  int32_t rank = 0, nranks = 0, nnodes = 0;
  uint32_t index = 0;      // number of the communicator in its process
  std::string gpu;         // device ordinal as the process sees it, "" when unknown
  std::string uuid;        // "GPU-xxxxxxxx-...", "" when unknown
  std::string pci_bus_id;  // "00000000:18:00.0" (dcgm-exporter's spelling), "" when unknown
  bool finalized = false;
  int64_t init_realtime_ns = 0;
  TrustState kernel_trust{};

  std::vector<CallCountSnapshot> calls;
  std::vector<CompositeSnapshot> composites;    // their Sends and Recvs are also in `calls`
  std::vector<ReplayedCallsSnapshot> replayed;  // executed by replays of CUDA graphs
  std::vector<AlgorithmCountSnapshot> algorithms;
  std::vector<LatencySnapshot> latencies;
  // Not from the segment: a server sends this summary to `pulse diagnose` in place of `latencies`.
  std::vector<UsualDurationSnapshot> usual_durations;
  std::vector<UntimedSnapshot> untimed;
  // Not from the segment: a server sends this summary to `pulse diagnose` in place of `untimed`.
  std::vector<AbandonedCallsSnapshot> abandoned_calls;
  std::vector<UncompletedSnapshot> uncompleted;
  std::vector<SequenceSnapshot> sequences;
  std::vector<TimedCallSnapshot> timed_calls;  // oldest first
  // Agreed calls older than `timed_calls`: one per second, the same on all ranks (agreed_call.h).
  std::vector<TimedCallSnapshot> picked_calls;  // oldest first
  // Oldest first; null: not requested (ReadWish), or the communicator has no ring of last calls.
  std::shared_ptr<const std::vector<LastCallSnapshot>> last_calls;
  uint32_t last_calls_kept = 0;               // capacity of that ring; 0: no ring
  CallOrderSnapshot call_order;               // if requested (ReadWish)
  PeersSnapshot peers;                        // if requested (ReadWish)
  std::vector<PeerCallsSnapshot> peer_calls;  // likewise, also without work in flight

  // The application's last call. "" before the first call, and if NCCL makes no callbacks for calls
  // (before API v5).
  std::string last_call_op;
  int last_call_size_class = 0;

  uint64_t launches = 0;  // reported by NCCL, or known from the end of their group
  // True if CUDA events behind the launches track completion. False without a CUDA driver, before
  // API v5, and after a driver failure: the next four fields then have the values of the last poll
  // before the failure.
  bool has_heartbeat = false;
  uint64_t launches_completed = 0;
  int64_t oldest_inflight_realtime_ns = 0;  // time of the oldest launch in flight; 0: none
  OldestLaunch oldest_launch{};             // queried when nothing has completed for 100 ms
  bool is_at_oldest = false;                // with kBegun: that launch is known to be incomplete
  // The next two fields are for communicators without a heartbeat: the source that detects the end
  // of operations, and the enqueue time of the oldest operation known to be in flight (0: none).
  CompletionSource operations_source = CompletionSource::kNone;
  int64_t oldest_operation_realtime_ns = 0;
  bool captured = false;  // calls were captured into a CUDA graph; NCCL does not report replays
  // The next four fields are about the followed CUDA graphs with calls of this communicator
  // (graph_position.h).
  uint64_t graph_replays = 0;            // replays begun
  uint64_t graph_replays_in_flight = 0;  // replays that have not passed their last stamp
  int64_t graph_moved_realtime_ns = 0;   // when a replay was last seen to move; 0: never
  GraphPosition graph_position;
  WorkSnapshot work;
  int64_t last_launch_realtime_ns = 0;      // 0: none yet
  int64_t last_completion_realtime_ns = 0;  // 0: none yet
  // Operations without a series of their own, because the budget of series was used up; and the
  // calls among them, which `calls` has under operation "overflow".
  uint64_t overflowed_operations = 0;
  uint64_t overflowed_calls = 0;

  int32_t nccl_api_version = 0;  // of the communicator's NCCL
  uint32_t event_mask = 0;       // NCCL's profiler event mask, as the plugin wrote it
  // Calls since the last launch that NCCL reported: they were not launched, or NCCL does not report
  // their launches.
  uint64_t unreported_calls = 0;
  bool are_unreported_in_group = false;  // NCCL is known not to have ended the last call's group
  int64_t unreported_since_realtime_ns = 0;  // when these calls were first seen; 0: none
  std::vector<LongestWaitSnapshot> longest_waits;
  // The first driver error from which the CUDA context does not recover (driver_error.h); 0: none.
  uint32_t driver_error = 0;
  int64_t driver_error_realtime_ns = 0;  // when it was seen

  // Sums over the watched network steps; all zero: none was watched.
  std::array<uint64_t, kNetworkDirections> network_bytes{};
  std::array<uint64_t, kNetworkWaits> network_wait_ns{};
  int64_t network_moved_realtime_ns = 0;  // end of the last watched step, 0: none
};

// Calls of an operation on communicators whose records were reused.
struct RecycledCallsSnapshot {
  std::string op;
  uint64_t calls = 0;
  uint64_t bytes = 0;
};

// Optional parts of a snapshot, which a reader requests.
struct ReadWish {
  // Communicators whose last calls are read: none, `comm_id`, or all that are not finalized.
  enum class LastCalls { kNone, kOfOne, kOfUnfinished };
  LastCalls last_calls = LastCalls::kNone;
  uint64_t comm_id = 0;  // kOfOne: the communicator
  // Reads call order and peers of communicators that have not progressed since this time, with work
  // in flight or after an operation that a rank can leave early, and calls by peer of all that have
  // not progressed; 0: of none.
  int64_t order_of_stalled_since_ns = 0;
};

// Calls of a process in a time window, and the time its streams spent in calls. A call includes its
// wait for other ranks. Made by PaceHistory (pace_history.h).
struct PaceWindow {
  uint64_t length_ms = 0;
  uint64_t collectives = 0;  // number of collectives called
  uint64_t others = 0;       // number of Sends and Recvs called
  uint64_t inside_ms = 0;    // time that streams spent in calls; estimated from the timed calls
  // Standard error of the time outside calls (length_ms - inside_ms), computed from the differences
  // between the shorter windows that this window was merged from.
  uint64_t error_ms = 0;
};

// How a process ended, as far as a reader knows (label `end` of
// nccl_pulse_process_end_timestamp_seconds).
enum class ProcessEnd : uint8_t {
  kLive = 0,
  kExit = 1,  // it announced its exit, or had finalized all its communicators
  kLost = 2,  // otherwise: killed, crashed, or left by _exit during its work
};
const char* ProcessEndName(ProcessEnd end);

// Process state from /proc, read by the node's server if the process' background thread has stalled
// (label `state` of nccl_pulse_process_state).
enum class RunState : uint8_t {
  kUnknown = 0,          // not queried, or not visible to the server
  kRunning = 1,          // runs, or sleeps until something wakes it
  kStopped = 2,          // state T: stopped by a signal
  kTraced = 3,           // state t: stopped by a debugger
  kUninterruptible = 4,  // state D: in a system call that no signal ends (a driver's, or I/O)
  kDumpingCore = 5,      // crashed, and the kernel is writing the core file
  kEnded = 6,            // state Z (waits to be reaped), or gone
  kFrozen = 7,           // by its cgroup (cgroup2's freezer), with state S or D
};
const char* RunStateName(RunState state);
// Returns the reason why a process is stopped, like "stopped by a signal"; "" in all other states.
const char* WhyNotRunning(RunState state);

struct ProcessSnapshot {
  int32_t pid = 0;
  uint32_t pid_namespace = 0;  // its inode; 0: the initial PID namespace, or unknown
  std::string plugin_version;
  std::string hostname;
  std::string global_rank, local_rank, job_id;  // "" if the launcher did not set them
  int32_t nccl_api_version = 0;                 // 1..7: the ncclProfiler_vN that NCCL picked
  std::string static_labels;                    // set by the user, "name=value,name=value"
  std::string nccl_environment;                 // "NCCL=2.28.9 NCCL_IB_HCA=mlx5_0"; "": not known
  std::string timing;                           // "auto", "kernel" or "off"
  uint32_t event_mask = 0;                      // events that the plugin requested from that NCCL
  std::string duration_source;                  // source of durations: "stream", "kernel" or "none"
  std::string completion_source;   // source of completions: "stream", "proxy", "kernel" or "none"
  int32_t sampling_exponent = -1;  // one call in 2^n is timed on the stream; -1: no stream timing
  int64_t start_realtime_ns = 0;
  int64_t last_poll_realtime_ns = 0;  // last iteration of the background thread
  // Monotonic time of the last iteration of thread "pulse-work", which reads NCCL's work counters;
  // 0: no such thread.
  uint64_t counters_read_ns = 0;
  PollerState poller{};
  uint32_t foreign_event_mask = 0;  // events common to all masks changed by another tool; 0: none
  uint64_t event_mask_changes = 0;  // number of these changes
  bool shared_memory = false;  // false: memfd or its seals were refused, private memory is used

  std::array<uint64_t, kCallbackKinds> callbacks{};
  uint64_t network_observed_ns = 0;  // total time during which network steps were watched, 0: never
  uint64_t sampled_callbacks = 0;    // callbacks whose cost was measured
  uint64_t sampled_callback_ns = 0;  // total time of these callbacks
  std::array<uint64_t, kIgnoredReasons> ignored{};
  uint64_t series_used = 0, series_limit = 0;
  uint32_t last_calls_wanted = 0;  // setting: last calls that each communicator keeps
  // Number of communicators whose records were reused, and their calls. The process' totals are the
  // sum of recycled_calls and of `calls` of all `communicators`.
  uint64_t recycled_communicators = 0;
  std::vector<RecycledCallsSnapshot> recycled_calls;  // operations with calls only
  uint64_t communicators_used = 0, communicator_limit = 0;
  uint64_t unmeasured_communicators = 0;  // without a record, because none was free
  std::array<uint64_t, kCaptureFates> graph_captures{};
  std::array<uint64_t, kCommandResults> commands{};
  uint32_t changed_settings = 0;  // bit n: LiveSetting n differs from the start
  // The threshold for a hang that the user has set; 0: none. A server replaces it with its own
  // threshold if that is shorter or this is 0.
  int64_t hang_after_ns = 0;

  std::vector<CommunicatorSnapshot> communicators;

  // Fields from here on are not from the segment.

  // Read by the node's server while the background thread is stalled.
  RunState run_state{};
  // Set by a server that keeps the last state of an ended process.
  ProcessEnd end{};
  int64_t end_realtime_ns = 0;
  // Set by a reader of several endpoints if the process' endpoint no longer answers: time of its
  // last answer, from which all other fields come. 0: the endpoint answers.
  int64_t heard_realtime_ns = 0;
  // Set by a reader of several endpoints: largest error of all times above on the reader's clock. 0:
  // not known.
  int64_t clock_error_ns = 0;
  // Set by a reader of several endpoints: number of live processes that this process' endpoint has
  // rejected.
  uint64_t rejected_beside = 0;
  // Read from a dump of PyTorch's Flight Recorder: neither host nor pid is known.
  bool is_of_dump = false;
  // The process runs without the plugin: all fields come from NCCL's RAS, NVML and /proc
  // (exporter/outside), and its calls are launches.
  bool is_from_outside = false;
  // The process' pid in the PID namespace of the node's server, as the kernel reported it (0: the
  // process is not visible there), and that namespace's inode (0: the initial PID namespace).
  int32_t seen_pid = 0;
  uint32_t seen_in = 0;
  // The process' user ID, as the kernel reported it to the node's server when the process connected
  // (SO_PEERCRED); -1: not known. A reader of another server's answer relies on that server.
  int64_t user = -1;
  // Set by a server that polls: a window before the process became slower, and one since then.
  // Empty: it has not become slower, or that is not known.
  std::vector<PaceWindow> pace;
};

}  // namespace nccl_pulse

#endif  // METRICS_SNAPSHOT_H_
