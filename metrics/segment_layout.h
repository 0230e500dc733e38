// The segment: the memory in which one process keeps everything it has measured.
//
// WHY. Numbers must survive a reader that is slow, hostile or gone, and a writer that crashes. So
// writers put plain 64-bit cells into memory that a reader can map read-only, and neither ever
// waits for the other. The memory is a memfd, sealed against shrinking and growing: a mapped page
// can not disappear under a reader (no SIGBUS). There are offsets and indices in it, never
// pointers. All integers are little-endian.
//
// clang-format off
//   offset
//   0        SegmentHeader         who wrote this, geometry, process-wide counters     4 KiB
//   4 KiB    NameEntry[128]        strings that NCCL gave (op, datatype, algo, proto)  4 KiB
//   8 KiB    CommunicatorRecord[]  identity, lanes, series, last timed calls           4672 B each
//   ...      Page[]                cells of histograms and counters                    2 KiB each
//
//   CommunicatorRecord                       Page, as histogram (one lane's cells of one series)
//   +-------------------------------+        +-----------------------------------------------+
//   | state, generation, identity,  |        | cell[0..241]  | sum_ns  | bytes  | bus_bytes  |
//   | heartbeat                     |   +--> +-----------------------------------------------+
//   +-------------------------------+   |
//   | FollowedLaunches              |   |
//   +-------------------------------+   |    Page, as counters (one lane's, all its series)
//   | Lane[4]       owner, fixed    |   |    +-----------------------------------------------+
//   |               counters, page -+---|--> | {a, b} of series 0  | ...  | of series 127     |
//   +-------------------------------+   |    +-----------------------------------------------+
//   | SeriesEntry[128]    key, page |   |
//   |               of each lane ---+---+
//   +-------------------------------+
//   | TimedCall[32]     ring        |
//   +-------------------------------+
//
// WHO WRITES WHAT
//   header, names           init and callbacks (names: append only; counters: relaxed adds on rare
//                           paths); recycled_*: RecordWriter
//   CommunicatorRecord      RecordWriter (record_writer.h): init, finalize and the background
//                           thread; followed and captured: the launching thread
//   Lane and its cells      whoever holds the lane, LaneWriter (lane_writer.h). A lane
//                           (docs/glossary.md) has one writer at a time, claimed for the length of
//                           one callback with one compare-and-swap and given back with one store.
//                           A thread that ends holds nothing, so nothing has to be taken over, and
//                           a thread born for one group costs nothing.
//   SeriesEntry.key         any lane's holder, once (compare-and-swap from 0); it does not change
//                           until the record is recycled
//   SeriesEntry.page[lane]  the holder of that lane, once
//
// STATES of a record
//   kFree ---> kLive ---> kFinalized ---> kFree ...
//        publish    finalize       recycle: ten minutes after the end, or when its place or its
//                                  series are needed, the oldest first
// Cells only grow while the record's generation stands still. Recycling changes the generation
// before anything else; a reader compares the generation before and after its copy.
// clang-format on
#ifndef METRICS_SEGMENT_LAYOUT_H_
#define METRICS_SEGMENT_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "metrics/histogram_geometry.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the segment's integers are little-endian");
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<uint32_t>::is_always_lock_free &&
                  std::atomic<uint16_t>::is_always_lock_free,
              "atomics in shared memory must not hide a lock");

using Cell = std::atomic<uint64_t>;

// Zero, the state of what was never used, for fields of any kind that others may be reading:
// relaxed, whoever publishes what comes next orders it.
template <typename T>
void ResetField(std::atomic<T>& field) {
  field.store(0, std::memory_order_relaxed);
}
template <typename T>
void ResetField(T& field) {
  __atomic_store_n(&field, T{0}, __ATOMIC_RELAXED);
}
template <typename T, size_t N>
void ResetField(T (&fields)[N]) {
  for (T& field : fields) ResetField(field);
}
template <typename... Fields>
void ResetFields(Fields&... fields) {
  (ResetField(fields), ...);
}

inline constexpr uint64_t kSegmentMagic = 0x31534c554c43434eULL;  // "NCCLULS1" read as bytes
inline constexpr uint32_t kSegmentVersion = 6;

inline constexpr int kLanes = 4;
inline constexpr int kSeriesPerCommunicator = 128;
inline constexpr int kTimedCalls = 32;
inline constexpr int kMaxNames = 128;
inline constexpr int kOperationRows = 16;  // NCCL's operations; all others share the last row
inline constexpr int kWaitRows = kOperationRows;
inline constexpr uint32_t kPageBytes = 2048;
inline constexpr uint16_t kNoPage = 0;                // page 0 is never handed out
inline constexpr uint32_t kStaticLabelsBytes = 1024;  // the terminating zero included
inline constexpr uint32_t kMaxCommunicators = 1024;
inline constexpr uint32_t kMaxSegmentPages = 65535;

// ---- header -------------------------------------------------------------------------------------

struct SegmentHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t total_bytes;
  uint64_t names_offset;
  uint64_t communicators_offset;
  uint64_t pages_offset;
  uint32_t communicator_bytes;  // stride
  uint32_t communicator_count;
  uint32_t page_bytes;
  uint32_t page_count;
  uint32_t name_count;
  uint32_t shared_memory;  // 1: sealed memfd, 0: private memory

  // Process identity, written before the segment is handed to any reader.
  int32_t pid;
  int32_t nccl_api_version;
  uint32_t event_mask;
  // Records whose memory is there. A reader must not touch those behind: reading a hole of a memfd
  // allocates it.
  std::atomic<uint32_t> records_present;
  char plugin_version[32];
  char timing[16];
  char hostname[256];
  char global_rank[32];
  char local_rank[32];
  char job_id[128];
  char duration_source[16];  // "stream", "kernel", "none"

  int64_t start_realtime_ns;
  // Times in cells are CLOCK_MONOTONIC; realtime = monotonic + this. Renewed by the background
  // thread, so a step of the wall clock moves the exported timestamps and nothing else.
  std::atomic<int64_t> realtime_offset_ns;
  Cell last_poll_monotonic_ns;

  std::atomic<int32_t> sampling_exponent;  // -1: no stream timing
  uint32_t pid_namespace;                  // its inode; 0: the system's own, or unknown
  Cell series_used;
  uint64_t series_limit;
  Cell sampled_callbacks;
  Cell sampled_callback_ns;
  Cell ignored[32];  // by IgnoredReason

  // Odd while a record is being recycled. A reader that saw it change starts again, so that
  // callbacks are never missing between their record and this sum.
  Cell recycle_epoch;
  Cell recycled_callbacks[6];  // by CallbackKind, of communicators whose record was recycled

  // How long network steps have been watched, 0: never. Written by the background thread.
  Cell network_observed_ns;

  std::atomic<uint32_t> poller_state;  // PollerState
  // The event mask was changed by somebody else (NCCL's RAS can, from 2.31 on): the events
  // that all masks in such a state have, 0: there is none; and how often. Written by the background
  // thread.
  std::atomic<uint32_t> foreign_event_mask;
  Cell event_mask_changes;

  // What the communicators whose record was recycled had called, so that the process' totals never
  // step back: by operation, rows as in CommunicatorRecord::longest_wait_ns. See recycle_epoch.
  Cell recycled_communicators;
  Cell recycled_calls[kOperationRows];
  Cell recycled_bytes[kOperationRows];

  Cell graph_captures[kCaptureFates];  // by CaptureFate. Background thread

  char completion_source[16];              // "stream", "proxy", "kernel", "none"
  char static_labels[kStaticLabelsBytes];  // the user's, "name=value,name=value"
};
static_assert(sizeof(SegmentHeader) <= 4096);
inline constexpr uint64_t kHeaderBytes = 4096;

struct NameEntry {
  std::atomic<uint32_t> state;  // 0 free, 1 being written, 2 valid
  char text[28];                // zero-terminated
};
static_assert(sizeof(NameEntry) == 32);
inline constexpr uint64_t kNamesBytes = kMaxNames * sizeof(NameEntry);

// ---- series -------------------------------------------------------------------------------------

enum class SeriesKind : uint8_t {
  kCalls = 1,        // op, size, datatype (a), captured (b): {calls, bytes}
  kAlgorithm = 2,    // op, algo (a), proto (b), UntimedReason or 0 (size): {operations, last
                     // sequence number + 1}
  kLatency = 3,      // op, size, LatencyKind (a): histogram page
  kUntimed = 4,      // op, UntimedReason (a): {operations, -}, those that kAlgorithm does not tell
  kUncompleted = 5,  // op: {operations, -}
  kReplayed = 6,     // op, size: {operations, bytes}, executed by replays of CUDA graphs
};

// Key of a series within its communicator, packed so that one compare-and-swap publishes it.
// Never 0. `op`, and where they are names `a` and `b`, are indices into the name table.
struct SeriesKey {
  static constexpr uint64_t Pack(SeriesKind kind, uint32_t op, uint32_t size_class, uint32_t a,
                                 uint32_t b) {
    return uint64_t{1} << 63 | uint64_t{static_cast<uint8_t>(kind)} << 32 |
           uint64_t{op & 0xff} << 24 | uint64_t{size_class & 0xff} << 16 | uint64_t{a & 0xff} << 8 |
           (b & 0xff);
  }
  static constexpr SeriesKind Kind(uint64_t key) {
    return static_cast<SeriesKind>(key >> 32 & 0xff);
  }
  static constexpr uint32_t Op(uint64_t key) { return key >> 24 & 0xff; }
  static constexpr int SizeClass(uint64_t key) { return static_cast<int>(key >> 16 & 0xff); }
  static constexpr uint32_t A(uint64_t key) { return key >> 8 & 0xff; }
  static constexpr uint32_t B(uint64_t key) { return key & 0xff; }
};

struct SeriesEntry {
  std::atomic<uint64_t> key;           // 0: free
  std::atomic<uint16_t> page[kLanes];  // histogram page of each lane, kNoPage: none yet

  void Reset() { ResetFields(key, page); }
};
static_assert(sizeof(SeriesEntry) == 16);

// ---- pages --------------------------------------------------------------------------------------

struct HistogramPage {
  Cell cells[kHistogramCells];
  Cell sum_ns;
  Cell bytes;
  Cell bus_bytes;
};
static_assert(sizeof(HistogramPage) <= kPageBytes);

struct CounterPair {
  Cell a, b;
};
struct CounterPage {
  CounterPair series[kSeriesPerCommunicator];
};
static_assert(sizeof(CounterPage) == kPageBytes);

// ---- communicators ------------------------------------------------------------------------------

struct Lane {
  std::atomic<uint32_t> owner;         // 0 free, 1 claimed
  std::atomic<uint16_t> counter_page;  // kNoPage: none yet
  uint16_t reserved0;
  Cell callbacks[6];  // by CallbackKind
  Cell launches;
  Cell last_launch_ns;  // monotonic; the largest over the lanes counts
  Cell last_completion_ns;
  Cell overflowed_operations;  // times that one found no series of its own
  Cell network_bytes[2];       // by NetworkDirection, of the steps that were watched
  Cell network_wait_ns[6];     // by NetworkWait
  // Calls that no kCalls series has, and their bytes: the calls' overflow, which needs neither an
  // entry nor a page. Of overflowed_operations.
  Cell overflowed_calls;
  Cell overflowed_bytes;
  uint64_t reserved1[3];

  // Everything but the owner. By whoever holds the lane.
  void Reset() {
    ResetFields(counter_page, callbacks, launches, last_launch_ns, last_completion_ns,
                overflowed_operations, network_bytes, network_wait_ns, overflowed_calls,
                overflowed_bytes);
  }
};
static_assert(sizeof(Lane) == 192, "whole cache lines: neighbours do not share");

// The last call, and the launches that are followed. NCCL serialises the calls and the launches of
// a communicator, so each of these cells has one writer at a time without a lane; launches that are
// not followed are counted in lanes.
struct FollowedLaunches {
  Cell launches;
  Cell callbacks;       // of CallbackKind::kLaunch
  Cell last_launch_ns;  // monotonic
  // The last call, while it is counted in no lane: its kCalls key, 0: none. The calling thread
  // hands it over, whoever holds the launch lane counts it and gives the cell back: the operation
  // that the call becomes, or the background thread when none comes. So a call costs its thread no
  // lane before its kernel is launched. A reader leaves it alone: counted in both ways, it would
  // make a counter step back.
  Cell uncounted_call;
  Cell uncounted_bytes;
  Cell last_call;  // what was called last: 1 + op | size_class << 8, 0: nothing yet
  uint64_t reserved[2];

  void Reset() {
    ResetFields(launches, callbacks, last_launch_ns, uncounted_call, uncounted_bytes, last_call);
  }
};
static_assert(sizeof(FollowedLaunches) == 64, "a cache line: lanes do not share");

// Ring of the last timed calls. `sequence` is 0 while the entry is written, else 1 + its number.
struct TimedCall {
  Cell sequence;
  Cell key;  // op | LatencyKind << 8 | size_class << 16 | call_number << 32
  Cell bytes;
  Cell duration_ns;
  Cell end_monotonic_ns;

  static constexpr uint64_t PackKey(uint32_t op, LatencyKind kind, uint32_t size_class,
                                    uint32_t call_number) {
    return uint64_t{op & 0xff} | uint64_t{static_cast<uint8_t>(kind)} << 8 |
           uint64_t{size_class & 0xff} << 16 | uint64_t{call_number} << 32;
  }
  void Reset() { ResetFields(sequence, key, bytes, duration_ns, end_monotonic_ns); }
};
static_assert(sizeof(TimedCall) == 40);

// Whether the GPU has begun the oldest launch in flight, and the number of that launch, so that the
// answer is never taken for one about another launch. 0: not known.
struct OldestLaunchBits {
  static constexpr uint64_t Pack(uint64_t launch, OldestLaunch oldest) {
    return oldest == OldestLaunch::kUnknown ? 0 : launch << 2 | static_cast<uint64_t>(oldest);
  }
  static constexpr OldestLaunch Of(uint64_t launch, uint64_t bits) {
    const bool is_of_it = bits >> 2 == launch && (bits & 3) <= 2;
    return is_of_it ? static_cast<OldestLaunch>(bits & 3) : OldestLaunch::kUnknown;
  }
};

enum class CommunicatorState : uint32_t { kFree = 0, kLive = 1, kFinalized = 2 };

struct CommunicatorRecord {
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> generation;
  std::atomic<uint64_t>
      comm_id;  // set late for API v1 to v3, which name it with the first operation
  std::atomic<int32_t> rank;
  int32_t nranks;
  int32_t nnodes;
  uint32_t index;
  std::atomic<uint32_t> kernel_trust;
  std::atomic<uint32_t> series_count;
  std::atomic<int64_t> finalized_monotonic_ns;
  int64_t init_realtime_ns;
  Cell next_timed_call;
  // Heartbeat, written by the background thread (captured: by the launching thread).
  Cell launches_completed;
  Cell oldest_inflight_ns;  // monotonic, 0: nothing in flight; a launch, or an operation (source)
  Cell oldest_launch;       // OldestLaunchBits
  std::atomic<uint32_t> completion_source;  // CompletionSource
  std::atomic<uint32_t> captured;
  char name[128];  // identity strings: zero-terminated, written by CopyToShared
  char gpu[16];
  char uuid[48];
  char pci_bus_id[32];
  int32_t nccl_api_version;  // of the NCCL that made it: a process may have several
  uint32_t event_mask;       // that this NCCL was given
  // Calls since the last launch that NCCL reported, as the background thread last saw them, and
  // since when they stand alone; 0: none. Their launches cannot be seen, or have not been made.
  Cell unreported_calls;
  Cell unreported_since_ns;  // monotonic
  // The longest that the oldest launch in flight stood without progress and then completed, by
  // what was called last meanwhile: the operation's name minus kFirstNcclName. Background thread.
  Cell longest_wait_ns[kWaitRows];
  // Replays of CUDA graphs (CommunicatorSnapshot). Background thread.
  Cell graph_replays;
  Cell graph_replays_in_flight;
  Cell graph_moved_ns;  // monotonic
  uint64_t reserved[2];
  alignas(64) FollowedLaunches followed;
  alignas(64) Lane lanes[kLanes];
  SeriesEntry series[kSeriesPerCommunicator];
  TimedCall timed_calls[kTimedCalls];

  // Everything but the state, the generation and the lanes' owners, as if it had never been used.
  // By who holds all lanes. Relaxed: published with the lanes, and with the state.
  void Reset() {
    ResetFields(comm_id, rank, nranks, nnodes, index, kernel_trust, series_count,
                finalized_monotonic_ns, init_realtime_ns, next_timed_call, launches_completed,
                oldest_inflight_ns, oldest_launch, completion_source, captured, name, gpu, uuid,
                pci_bus_id, nccl_api_version, event_mask, unreported_calls, unreported_since_ns,
                longest_wait_ns, graph_replays, graph_replays_in_flight, graph_moved_ns);
    followed.Reset();
    for (Lane& lane : lanes) lane.Reset();
    for (SeriesEntry& entry : series) entry.Reset();
    for (TimedCall& call : timed_calls) call.Reset();
  }
};
inline constexpr uint64_t kRecordStride = sizeof(CommunicatorRecord);
static_assert(kRecordStride == 4672 && kRecordStride % 64 == 0,
              "cache lines of two records differ");
static_assert(offsetof(CommunicatorRecord, followed) ==
                  offsetof(CommunicatorRecord, reserved) + sizeof(CommunicatorRecord::reserved),
              "no padding: the test of Reset looks at every byte");

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_LAYOUT_H_
