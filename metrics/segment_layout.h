// The segment: the memory in which one process keeps everything it has measured.
//
// WHY. Numbers must survive a reader that is slow, hostile or gone, and a writer that crashes. So
// writers put plain 64-bit cells into memory that a reader can map read-only, and neither waits for
// the other. The memory is a memfd, sealed against shrinking and growing: a mapped chunk cannot
// disappear under a reader (no SIGBUS). It holds offsets and indices, never pointers. All integers
// are little-endian.
//
//   offset
//   0        SegmentHeader         who wrote this, geometry, process-wide counters     4 KiB
//   4 KiB    NameEntry[128]        strings that NCCL gave (op, datatype, algo, proto)  4 KiB
//   8 KiB    CommunicatorRecord[]  identity, lanes, series, timed calls                7040 B each
//   ...      Chunk[]                cells of histograms and counters, last calls        2 KiB each
//
//   CommunicatorRecord                       Chunk, as histogram (one lane's cells of one series)
//   +-------------------------------+        +-----------------------------------------------+
//   | life, identity, heartbeat     |        | cell[0..241]  | sum_ns  | bytes  | bus_bytes  |
//   +-------------------------------+   +--> +-----------------------------------------------+
//   | FollowedLaunches              |   |
//   +-------------------------------+   |    Chunk, as counters (one lane's, all its series)
//   | Lane[4]       claim, fixed    |   |    +-----------------------------------------------+
//   |               counters, chunk -+---|--> | {a, b} of series 0  | ...  | of series 127     |
//   +-------------------------------+   |    +-----------------------------------------------+
//   | SeriesEntry[128]    key, chunk |   |
//   |               of each lane ---+---+
//   +-------------------------------+
//   | TimedCall[32]     ring        |
//   | TimedCall[32]     agreed      |
//   | PeerCalls[8]      Send, Recv  |
//   +-------------------------------+
//
// WHO WRITES WHAT
//   header                  HeaderWriter (header_writer.h, which names the exceptions): init,
//                           background thread, callbacks on rare paths
//   names                   init and callbacks, append only
//   CommunicatorRecord      RecordWriter (record_writer.h): init, finalize, background threads;
//                           `followed`, `captured` and `peer_calls`: the threads that call, launch
//                           and report operations; timed calls: a lane's holder
//   Chunk of last calls      the calling and the launching thread, LastCalls (last_calls.h)
//   Lane and its cells      the lane's holder, LaneWriter (lane_writer.h). A lane
//                           (docs/architecture.md) has one writer at a time. One compare-and-swap
//                           claims it for the length of one callback; one store releases it.
//                           Threads hold nothing between callbacks, so a thread that ends leaves
//                           nothing to take over, and a short-lived thread costs nothing. In lane 0
//                           the threads that call, launch and report operations write without a
//                           claim, each its own cells (visit.h)
//   SeriesEntry.key         any lane's holder, once (compare-and-swap from 0); unchanged until the
//                           record is recycled
//   SeriesEntry.chunk[lane]  the holder of that lane, once
//
// STATES of a record
//   kFree ---> kLive ---> kFinalized ---> kFree ...
//        publish    finalize       recycle: at an init ten minutes after the communicator's end, or
//                                  when the record or its series are needed, the oldest first
// Counters only grow while the record's generation is unchanged. Recycling changes the generation
// before it zeroes anything. A reader compares it before and after its copy (record_life.h).
//
// Orderings belong to the types of the fields; atomic_cell.h has the rules.
#ifndef METRICS_SEGMENT_LAYOUT_H_
#define METRICS_SEGMENT_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "metrics/agreed_call.h"
#include "metrics/atomic_cell.h"
#include "metrics/chunk_pool.h"
#include "metrics/heartbeat.h"
#include "metrics/histogram_geometry.h"
#include "metrics/kinds.h"
#include "metrics/lane_claim.h"
#include "metrics/last_call_entry.h"
#include "metrics/long_wait.h"
#include "metrics/name_entry.h"
#include "metrics/peer_calls.h"
#include "metrics/record_life.h"
#include "metrics/series_key.h"
#include "metrics/timed_call.h"

namespace nccl_pulse {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the segment's integers are little-endian");
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<uint32_t>::is_always_lock_free &&
                  std::atomic<uint16_t>::is_always_lock_free,
              "atomics in shared memory must not hide a lock");

// A counter, or another number with release and acquire. Its writer publishes it after the fields
// that belong to it.
using Cell = Ordered<uint64_t>;

// Zeroes a field, as if never used. Relaxed: the next publication of the record or lane orders it.
template <typename T>
void ResetField(Relaxed<T>& field) {
  field.store(0);
}
inline void ResetField(char& field) { __atomic_store_n(&field, '\0', __ATOMIC_RELAXED); }
template <typename T, size_t N>
void ResetField(T (&fields)[N]) {
  for (T& field : fields) ResetField(field);
}
template <typename... Fields>
void ResetFields(Fields&... fields) {
  (ResetField(fields), ...);
}

inline constexpr uint64_t kSegmentMagic = 0x31534c554c43434eULL;  // in memory: "NCCLULS1"
inline constexpr uint32_t kSegmentVersion = 15;

inline constexpr int kLanes = 4;
inline constexpr int kSeriesPerCommunicator = 128;
inline constexpr int kTimedCalls = 32;
inline constexpr int kMaxNames = 128;
inline constexpr int kOperationRows = 16;  // NCCL's operations; all others share the last row
inline constexpr int kMaxUserTags = 64;
inline constexpr uint32_t kChunkBytes = 2048;
inline constexpr uint32_t kLastCallsPerChunk = kChunkBytes / sizeof(LastCallEntry);
inline constexpr uint32_t kLastCallChunks = 8;  // per communicator, at most
inline constexpr uint32_t kMostLastCalls = kLastCallChunks * kLastCallsPerChunk;
inline constexpr uint32_t kMostLastCallChunks = 256;     // per process
inline constexpr uint32_t kStaticLabelsBytes = 1024;     // including the terminating zero
inline constexpr uint32_t kNcclEnvironmentBytes = 1024;  // likewise
inline constexpr uint32_t kMaxCommunicators = 1024;
inline constexpr uint32_t kMaxSegmentChunks = 65535;

// ---- header -------------------------------------------------------------------------------------

struct SegmentHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t total_bytes;
  uint64_t names_offset;
  uint64_t communicators_offset;
  uint64_t chunks_offset;
  uint32_t communicator_bytes;  // stride
  uint32_t communicator_count;
  uint32_t chunk_bytes;
  uint32_t chunk_count;
  uint32_t name_count;
  uint32_t shared_memory;  // 1: sealed memfd, 0: private memory

  // Process identity, written before the segment is handed to any reader. ProcessSnapshot
  // (snapshot.h) explains these fields.
  int32_t pid;
  int32_t nccl_api_version;
  uint32_t event_mask;
  // Records whose memory is populated. A reader must not touch later ones: reading a hole of a
  // memfd allocates it.
  Ordered<uint32_t> records_present;
  char plugin_version[32];
  char timing[16];
  char hostname[256];
  char global_rank[32];
  char local_rank[32];
  char job_id[128];
  char duration_source[16];  // "stream", "kernel", "none"

  int64_t start_realtime_ns;
  // CLOCK_REALTIME minus CLOCK_MONOTONIC. Times in cells are monotonic. Renewed by the background
  // thread, so a step of the wall clock moves only the exported timestamps.
  Relaxed<int64_t> realtime_offset_ns;
  Cell last_poll_monotonic_ns;  // last iteration of the background thread

  Relaxed<int32_t> sampling_exponent;  // n: one call in 2^n is timed on the stream; -1: none is
  uint32_t pid_namespace;              // its inode; 0: the initial PID namespace, or unknown
  Cell series_used;                    // series taken from the process' budget
  uint64_t series_limit;               // that budget
  Cell sampled_callbacks;              // callbacks whose cost was measured
  Cell sampled_callback_ns;            // total time of these callbacks
  Cell ignored[32];                    // by IgnoredReason

  // A reader that sees it change starts over. So it never misses counts that are being moved from a
  // record to the sums over recycled communicators.
  RecycleEpoch recycle_epoch;
  Cell recycled_callbacks[6];  // by CallbackKind, of communicators whose record was recycled

  // Total time during which network steps were watched. Written by the background thread.
  Cell network_observed_ns;

  Relaxed<uint32_t> poller_state;  // PollerState
  // Changes of the event mask by another tool (NCCL's RAS can, from 2.31 on): the events common to
  // all changed masks (0: none), and the number of changes. Written by the background thread.
  Relaxed<uint32_t> foreign_event_mask;
  Cell event_mask_changes;

  // Number of recycled communicators, and their calls and bytes, so that the process' totals never
  // decrease. Indexed by the operation's OperationRowOf (name_table.h).
  Cell recycled_communicators;
  Cell recycled_calls[kOperationRows];
  Cell recycled_bytes[kOperationRows];

  Cell graph_captures[kCaptureFates];  // by CaptureFate; written by the background thread

  // The user's tags in order of appearance (user_tags.h); 0: free. Each is written once.
  Relaxed<uint64_t> user_tags[kMaxUserTags];

  char completion_source[16];                    // "stream", "proxy", "kernel", "none"
  char static_labels[kStaticLabelsBytes];        // set by the user, "name=value,name=value"
  char nccl_environment[kNcclEnvironmentBytes];  // plugin/runtime/nccl_environment.h

  // Entries of each communicator's ring of last calls, in full chunks (a power of two); 0: none.
  uint32_t last_calls;
  Relaxed<uint32_t> last_call_chunks_used;  // chunks in all rings; written under the runtime's lock

  // Written by the background thread.
  Cell commands[kCommandResults];      // commands to the process, by CommandResult
  Relaxed<uint32_t> changed_settings;  // bit n: LiveSetting n differs from its value at the start

  // Last iteration of thread "pulse-work", which reads NCCL's work counters; 0: no such thread.
  Cell counters_read_monotonic_ns;

  // The user's threshold for a hang; 0: none. Written in init, then by the background thread.
  Relaxed<uint32_t> hang_after_seconds;
  // Communicators without a record, because none was free. Written under the runtime's lock.
  Relaxed<uint32_t> unmeasured_communicators;
};
static_assert(sizeof(SegmentHeader) <= 4096);
inline constexpr uint64_t kHeaderBytes = 4096;

inline constexpr uint64_t kNamesBytes = kMaxNames * sizeof(NameEntry);

// ---- series -------------------------------------------------------------------------------------

struct SeriesEntry {
  Relaxed<uint64_t> key;            // SeriesKey; 0: free. No other data depends on it
  Ordered<uint16_t> chunk[kLanes];  // histogram chunk of each lane, kNoChunk: none yet

  void Reset() { ResetFields(key, chunk); }
};
static_assert(sizeof(SeriesEntry) == 16);

// ---- chunks -------------------------------------------------------------------------------------

struct HistogramChunk {
  Cell cells[kHistogramCells];  // histogram_geometry.h
  Cell sum_ns;                  // total of the durations
  Cell bytes;                   // of the timed operations
  Cell bus_bytes;               // by nccl-tests' bus bandwidth convention
};
static_assert(sizeof(HistogramChunk) <= kChunkBytes);

struct CounterPair {
  Cell a, b;  // series_key.h says what they count
};
struct CounterChunk {
  CounterPair series[kSeriesPerCommunicator];
};
static_assert(sizeof(CounterChunk) == kChunkBytes);

struct LastCallChunk {
  LastCallEntry entries[kLastCallsPerChunk];
};
static_assert(sizeof(LastCallChunk) == kChunkBytes);

// ---- communicators ------------------------------------------------------------------------------

struct Lane {
  LaneClaim claim;
  Ordered<uint16_t> counter_chunk;  // kNoChunk: none yet
  uint16_t reserved0;
  Cell callbacks[6];           // by CallbackKind
  Cell launches;               // that are not followed, see FollowedLaunches
  Cell last_launch_ns;         // monotonic; the latest of all lanes is valid
  Cell last_completion_ns;     // likewise
  Cell overflowed_operations;  // operations without a series of their own
  Cell network_bytes[2];       // by NetworkDirection, of watched steps
  Cell network_wait_ns[6];     // by NetworkWait
  // Calls for which there was no kCalls series (SeriesKind), and their bytes. These calls are also
  // part of overflowed_operations.
  Cell overflowed_calls;
  Cell overflowed_bytes;
  Relaxed<uint64_t> network_moved_ns;  // monotonic; end of the last watched step
  uint64_t reserved1[2];

  // Zeroes everything but the claim. Caller holds the lane.
  void Reset() {
    ResetFields(counter_chunk, callbacks, launches, last_launch_ns, last_completion_ns,
                overflowed_operations, network_bytes, network_wait_ns, overflowed_calls,
                overflowed_bytes, network_moved_ns);
  }
};
static_assert(sizeof(Lane) == 192, "whole cache lines: neighbours do not share");

// Packs operation (index into the name table) and size class of the last call: op + 1 |
// size_class << 8. 0: none yet.
struct LastCall {
  static constexpr uint64_t Pack(uint32_t op, uint32_t size_class) {
    return Pack(uint64_t{op} | uint64_t{size_class} << 8);
  }
  static constexpr uint64_t Pack(uint64_t bits) { return (bits & 0xffff) + 1; }
  static constexpr bool IsKnown(uint64_t bits) { return (bits & 0xff) != 0; }
  static constexpr uint32_t Op(uint64_t bits) { return static_cast<uint32_t>(bits & 0xff) - 1; }
  static constexpr uint32_t SizeClass(uint64_t bits) { return bits >> 8 & 0xff; }
};

// The callbacks that FollowedLaunches counts.
inline constexpr CallbackKind kFollowedCallbacks[] = {CallbackKind::kApi, CallbackKind::kLaunch,
                                                      CallbackKind::kOperation};

// The last call, and the followed launches, whose end CUDA events or NCCL's work counter show. NCCL
// serializes the calls and the launches of a communicator, so each cell has one writer at a time
// without a lane. Lanes count other launches, and the series of eager (uncaptured) operations.
struct FollowedLaunches {
  Cell launches;
  Cell callbacks[3];                 // of kFollowedCallbacks; lanes may count more of each
  Relaxed<uint64_t> last_launch_ns;  // monotonic
  Relaxed<uint64_t> last_call;       // LastCall
  uint64_t reserved[2];

  Cell& callbacks_of(CallbackKind kind) { return callbacks[static_cast<int>(kind)]; }
  const Cell& callbacks_of(CallbackKind kind) const { return callbacks[static_cast<int>(kind)]; }
  void Reset() { ResetFields(launches, callbacks, last_launch_ns, last_call); }
};
static_assert(sizeof(FollowedLaunches) == 64, "a cache line: lanes do not share");

// Packs CommunicatorRecord::work_status: state (bits 0 to 7), refutal (8 to 15), two flags.
struct WorkStatus {
  static constexpr uint64_t Pack(WorkState state, WorkRefutal refutal, bool are_operations_known,
                                 bool is_being_proven) {
    return static_cast<uint64_t>(state) | static_cast<uint64_t>(refutal) << 8 |
           uint64_t{are_operations_known} << 16 | uint64_t{is_being_proven} << 17;
  }
  static constexpr uint32_t State(uint64_t bits) { return bits & 0xff; }
  static constexpr uint32_t Refutal(uint64_t bits) { return bits >> 8 & 0xff; }
  static constexpr bool AreOperationsKnown(uint64_t bits) { return (bits >> 16 & 1) != 0; }
  static constexpr bool IsBeingProven(uint64_t bits) { return (bits >> 17 & 1) != 0; }
};

// CommunicatorRecord::unreported_calls: number of calls (63 bits) | flag kInGroup: NCCL is known
// not to have ended the last call's group.
struct UnreportedCallsBits {
  static constexpr uint64_t kInGroup = uint64_t{1} << 63;
};

struct CommunicatorRecord {
  RecordLife life;
  Relaxed<uint64_t> comm_id;  // set late for API v1 to v3, which pass it with the first operation
  Relaxed<int32_t> rank;
  Relaxed<int32_t> nranks;
  Relaxed<int32_t> nnodes;
  Relaxed<uint32_t> index;         // number of the communicator in its process
  Relaxed<uint32_t> kernel_trust;  // TrustState
  Relaxed<uint32_t> series_count;  // used entries of `series`
  Relaxed<int64_t> finalized_monotonic_ns;
  Relaxed<int64_t> init_realtime_ns;
  Relaxed<uint64_t> next_timed_call;    // number of timed calls so far
  HeartbeatCells heartbeat;             // written by the background thread
  Relaxed<uint32_t> completion_source;  // CompletionSource
  Relaxed<uint32_t> captured;           // 1: calls were captured; written by callbacks
  char name[128];  // identity strings: zero-terminated, written by CopyToShared
  char gpu[16];
  char uuid[48];
  char pci_bus_id[32];
  Relaxed<int32_t> nccl_api_version;  // of the communicator's NCCL; a process may have several
  Relaxed<uint32_t> event_mask;       // NCCL's profiler event mask, as the plugin wrote it
  // Calls since the last launch that NCCL reported (0: none): they were not launched, or NCCL does
  // not report their launches. `unreported_since_ns`: when the background thread first saw them.
  Cell unreported_calls;                  // UnreportedCallsBits
  Relaxed<uint64_t> unreported_since_ns;  // monotonic; published by unreported_calls
  // The longest pauses that ended with progress. Written by the background thread.
  LongWait long_waits[kLongWaits];
  // Replays of CUDA graphs (CommunicatorSnapshot). Written by the background thread. The time is
  // stored first and read last: a reader that sees the other values also sees a recent time.
  Cell graph_replays;
  Cell graph_replays_in_flight;
  Cell graph_captures;  // GraphPosition, with graph_calls
  Cell graph_calls;
  Relaxed<uint64_t> graph_moved_ns;  // monotonic
  // Chunks of the ring of last calls, ended by kNoChunk. Published with the state.
  BasicLastCallChunks<StdAtomics, kLastCallChunks> last_call_chunks;
  // The first driver error from which the CUDA context does not recover (driver_error.h; 0: none),
  // and when it was seen. Written by the background thread.
  Cell driver_error;
  Relaxed<uint64_t> driver_error_ns;  // monotonic; published by driver_error
  // NCCL's own work counter (plugin/cuda/work_proof.h). Written by thread "pulse-work". Times are
  // stored first and read last, as for replays.
  Cell work_status;                 // WorkStatus
  Cell work_operations;             // executed by replays of graphs
  Relaxed<uint64_t> work_moved_ns;  // monotonic
  Relaxed<uint64_t> work_longest_pause_ns;
  alignas(64) FollowedLaunches followed;
  alignas(64) Lane lanes[kLanes];
  SeriesEntry series[kSeriesPerCommunicator];
  TimedCall timed_calls[kTimedCalls];
  // The agreed call of each second (agreed_call.h). Index: the second, modulo kMoments.
  TimedCall calls_of_moments[kMoments];
  alignas(64) PeerCallTable peer_calls;  // eager and captured

  // Zeroes everything but `life` and the claims of the lanes. Caller holds all lanes. Relaxed:
  // their release, or the next Publish, publishes the zeros.
  void Reset() {
    ResetFields(comm_id, rank, nranks, nnodes, index, kernel_trust, series_count,
                finalized_monotonic_ns, init_realtime_ns, next_timed_call, completion_source,
                captured, name, gpu, uuid, pci_bus_id, nccl_api_version, event_mask,
                unreported_calls, unreported_since_ns, graph_replays, graph_replays_in_flight,
                graph_captures, graph_calls, graph_moved_ns, driver_error, driver_error_ns,
                work_status, work_operations, work_moved_ns, work_longest_pause_ns);
    for (LongWait& wait : long_waits) ResetFields(wait.what, wait.when);
    for (uint32_t i = 0; i < kLastCallChunks; ++i) last_call_chunks.Set(i, kNoChunk);
    heartbeat.Reset();
    followed.Reset();
    for (Lane& lane : lanes) lane.Reset();
    for (SeriesEntry& entry : series) entry.Reset();
    for (TimedCall& call : timed_calls) call.Reset();
    for (TimedCall& call : calls_of_moments) call.Reset();
    for (PeerCalls& each : peer_calls.peers) ResetFields(each.calls, each.whom, each.sums);
  }
};
inline constexpr uint64_t kRecordStride = sizeof(CommunicatorRecord);
static_assert(kRecordStride == 7040 && kRecordStride % 64 == 0,
              "cache lines of two records differ");
static_assert(offsetof(CommunicatorRecord, followed) ==
                  offsetof(CommunicatorRecord, work_longest_pause_ns) + sizeof(uint64_t),
              "no padding: the test of Reset looks at every byte");

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_LAYOUT_H_
