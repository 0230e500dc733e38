// The segment: the memory in which one process keeps everything it has measured.
//
// WHY. Numbers must survive a reader that is slow, hostile or gone, and a writer that crashes. So
// writers put plain 64-bit cells into memory that a reader can map read-only, and neither ever
// waits for the other. The memory is a memfd, sealed against shrinking and growing: a mapped page
// cannot disappear under a reader (no SIGBUS). There are offsets and indices in it, never
// pointers. All integers are little-endian.
//
//   offset
//   0        SegmentHeader         who wrote this, geometry, process-wide counters     4 KiB
//   4 KiB    NameEntry[128]        strings that NCCL gave (op, datatype, algo, proto)  4 KiB
//   8 KiB    CommunicatorRecord[]  identity, lanes, series, timed calls                6016 B each
//   ...      Page[]                cells of histograms and counters, last calls        2 KiB each
//
//   CommunicatorRecord                       Page, as histogram (one lane's cells of one series)
//   +-------------------------------+        +-----------------------------------------------+
//   | life, identity, heartbeat     |        | cell[0..241]  | sum_ns  | bytes  | bus_bytes  |
//   +-------------------------------+   +--> +-----------------------------------------------+
//   | FollowedLaunches              |   |
//   +-------------------------------+   |    Page, as counters (one lane's, all its series)
//   | Lane[4]       claim, fixed    |   |    +-----------------------------------------------+
//   |               counters, page -+---|--> | {a, b} of series 0  | ...  | of series 127     |
//   +-------------------------------+   |    +-----------------------------------------------+
//   | SeriesEntry[128]    key, page |   |
//   |               of each lane ---+---+
//   +-------------------------------+
//   | TimedCall[32]     ring        |
//   | TimedCall[32]     of moments  |
//   +-------------------------------+
//
// WHO WRITES WHAT
//   header                  HeaderWriter (header_writer.h): init, the background thread, and on rare
//                           paths callbacks; its geometry and records_present: Segment
//   names                   init and callbacks, append only
//   CommunicatorRecord      RecordWriter (record_writer.h): init, finalize and the background
//                           thread; followed and captured: the launching thread
//   Page of last calls      the calling and the launching thread, LastCalls (last_calls.h)
//   Lane and its cells      whoever holds the lane, LaneWriter (lane_writer.h). A lane
//                           (docs/architecture.md) has one writer at a time, claimed for the length of
//                           one callback with one compare-and-swap and given back with one store.
//                           A thread that ends holds nothing, so nothing has to be taken over, and
//                           a thread born for one group costs nothing. In lane 0 the threads that
//                           call, launch and report operations write without a claim, each its own
//                           cells (visit.h)
//   SeriesEntry.key         any lane's holder, once (compare-and-swap from 0); it does not change
//                           until the record is recycled
//   SeriesEntry.page[lane]  the holder of that lane, once
//
// STATES of a record
//   kFree ---> kLive ---> kFinalized ---> kFree ...
//        publish    finalize       recycle: ten minutes after the end, or when its place or its
//                                  series are needed, the oldest first
// Cells only grow while the record's generation stands still. Recycling changes the generation
// before anything else; a reader compares the generation before and after its copy: record_life.h.
//
// Orderings belong to the types of the fields: atomic_cell.h has the rules.
#ifndef METRICS_SEGMENT_LAYOUT_H_
#define METRICS_SEGMENT_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "metrics/agreed_call.h"
#include "metrics/atomic_cell.h"
#include "metrics/heartbeat.h"
#include "metrics/histogram_geometry.h"
#include "metrics/kinds.h"
#include "metrics/lane_claim.h"
#include "metrics/last_call_entry.h"
#include "metrics/long_wait.h"
#include "metrics/name_entry.h"
#include "metrics/page_pool.h"
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

// A number that grows while its owner lives. Its writer publishes it last of what belongs together.
using Cell = Ordered<uint64_t>;

// Zero, the state of what was never used. Relaxed: whoever publishes what comes next orders it.
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

inline constexpr uint64_t kSegmentMagic = 0x31534c554c43434eULL;  // "NCCLULS1" read as bytes
inline constexpr uint32_t kSegmentVersion = 14;

inline constexpr int kLanes = 4;
inline constexpr int kSeriesPerCommunicator = 128;
inline constexpr int kTimedCalls = 32;
inline constexpr int kMaxNames = 128;
inline constexpr int kOperationRows = 16;  // NCCL's operations; all others share the last row
inline constexpr int kMaxUserTags = 64;
inline constexpr uint32_t kPageBytes = 2048;
inline constexpr uint32_t kLastCallsPerPage = kPageBytes / sizeof(LastCallEntry);
inline constexpr uint32_t kLastCallPages = 8;  // of a communicator, at most
inline constexpr uint32_t kMostLastCalls = kLastCallPages * kLastCallsPerPage;
inline constexpr uint32_t kMostLastCallPages = 256;      // of a process
inline constexpr uint32_t kStaticLabelsBytes = 1024;     // the terminating zero included
inline constexpr uint32_t kNcclEnvironmentBytes = 1024;  // likewise
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
  Ordered<uint32_t> records_present;
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
  Relaxed<int64_t> realtime_offset_ns;
  Cell last_poll_monotonic_ns;

  Relaxed<int32_t> sampling_exponent;  // -1: no stream timing
  uint32_t pid_namespace;              // its inode; 0: the system's own, or unknown
  Cell series_used;
  uint64_t series_limit;
  Cell sampled_callbacks;
  Cell sampled_callback_ns;
  Cell ignored[32];  // by IgnoredReason

  // A reader that saw it change starts again, so that callbacks are never missing between their
  // record and this sum.
  RecycleEpoch recycle_epoch;
  Cell recycled_callbacks[6];  // by CallbackKind, of communicators whose record was recycled

  // How long network steps have been watched, 0: never. Written by the background thread.
  Cell network_observed_ns;

  Relaxed<uint32_t> poller_state;  // PollerState
  // Somebody else changed the event mask (NCCL's RAS can, from 2.31 on). The first: the events that
  // all masks in such a state have, 0: there is none. The second: how often. Background thread.
  Relaxed<uint32_t> foreign_event_mask;
  Cell event_mask_changes;

  // What the communicators whose record was recycled had called, so that the process' totals never
  // step back: by operation, rows as in OperationRowOf. See recycle_epoch.
  Cell recycled_communicators;
  Cell recycled_calls[kOperationRows];
  Cell recycled_bytes[kOperationRows];

  Cell graph_captures[kCaptureFates];  // by CaptureFate. Background thread

  // The user's tags that were met, in that order; 0: free. Written once each. user_tags.h
  Relaxed<uint64_t> user_tags[kMaxUserTags];

  char completion_source[16];                    // "stream", "proxy", "kernel", "none"
  char static_labels[kStaticLabelsBytes];        // the user's, "name=value,name=value"
  char nccl_environment[kNcclEnvironmentBytes];  // plugin/runtime/nccl_environment.h

  // Entries that a communicator's ring of last calls is to have: 0, or a power of two of pages full.
  // And the pages that rings have; init lock.
  uint32_t last_calls;
  Relaxed<uint32_t> last_call_pages_used;

  // Commands to the process, by CommandResult, and which settings are not what it started with: bit
  // n is LiveSetting n. Background thread.
  Cell commands[kCommandResults];
  Relaxed<uint32_t> changed_settings;

  Cell counters_read_monotonic_ns;  // by "pulse-work", 0: there is no such thread
};
static_assert(sizeof(SegmentHeader) <= 4096);
inline constexpr uint64_t kHeaderBytes = 4096;

inline constexpr uint64_t kNamesBytes = kMaxNames * sizeof(NameEntry);

// ---- series -------------------------------------------------------------------------------------

struct SeriesEntry {
  Relaxed<uint64_t> key;           // SeriesKey, 0: free. The key is all there is to see
  Ordered<uint16_t> page[kLanes];  // histogram page of each lane, kNoPage: none yet

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

struct LastCallPage {
  LastCallEntry entries[kLastCallsPerPage];
};
static_assert(sizeof(LastCallPage) == kPageBytes);

// ---- communicators ------------------------------------------------------------------------------

struct Lane {
  LaneClaim claim;
  Ordered<uint16_t> counter_page;  // kNoPage: none yet
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
  Relaxed<uint64_t> network_moved_ns;  // monotonic: when such a step ended last
  uint64_t reserved1[2];

  // Everything but the claim. By whoever holds the lane.
  void Reset() {
    ResetFields(counter_page, callbacks, launches, last_launch_ns, last_completion_ns,
                overflowed_operations, network_bytes, network_wait_ns, overflowed_calls,
                overflowed_bytes, network_moved_ns);
  }
};
static_assert(sizeof(Lane) == 192, "whole cache lines: neighbours do not share");

// What was called last: 1 + the operation's name | size class << 8. 0: nothing yet.
struct LastCall {
  static constexpr uint64_t Pack(uint32_t op, uint32_t size_class) {
    return Pack(uint64_t{op} | uint64_t{size_class} << 8);
  }
  static constexpr uint64_t Pack(uint64_t bits) { return (bits & 0xffff) + 1; }
  static constexpr bool IsKnown(uint64_t bits) { return (bits & 0xff) != 0; }
  static constexpr uint32_t Op(uint64_t bits) { return static_cast<uint32_t>(bits & 0xff) - 1; }
  static constexpr uint32_t SizeClass(uint64_t bits) { return bits >> 8 & 0xff; }
};

inline constexpr CallbackKind kFollowedCallbacks[] = {CallbackKind::kApi, CallbackKind::kLaunch,
                                                      CallbackKind::kOperation};

// The last call, and the launches that are followed. NCCL serialises the calls and the launches of
// a communicator, so each of these cells has one writer at a time without a lane; launches that are
// not followed are counted in lanes. All that an eager operation counts in a record, but for its
// series, is in this line.
struct FollowedLaunches {
  Cell launches;
  Cell callbacks[3];                 // of kFollowedCallbacks, less those in lanes
  Relaxed<uint64_t> last_launch_ns;  // monotonic
  Relaxed<uint64_t> last_call;       // LastCall
  uint64_t reserved[2];

  Cell& callbacks_of(CallbackKind kind) { return callbacks[static_cast<int>(kind)]; }
  const Cell& callbacks_of(CallbackKind kind) const { return callbacks[static_cast<int>(kind)]; }
  void Reset() { ResetFields(launches, callbacks, last_launch_ns, last_call); }
};
static_assert(sizeof(FollowedLaunches) == 64, "a cache line: lanes do not share");

// CommunicatorRecord::work_status: state:8 | refutal:8 | whether operations are known:1.
struct WorkStatus {
  static constexpr uint64_t Pack(WorkState state, WorkRefutal refutal, bool are_operations_known) {
    return static_cast<uint64_t>(state) | static_cast<uint64_t>(refutal) << 8 |
           uint64_t{are_operations_known} << 16;
  }
  static constexpr uint32_t State(uint64_t bits) { return bits & 0xff; }
  static constexpr uint32_t Refutal(uint64_t bits) { return bits >> 8 & 0xff; }
  static constexpr bool AreOperationsKnown(uint64_t bits) { return (bits >> 16 & 1) != 0; }
};

// CommunicatorRecord::unreported_calls: calls:63 | whether NCCL has not ended the group of the last one:1.
struct UnreportedCallsBits {
  static constexpr uint64_t kInGroup = uint64_t{1} << 63;
};

struct CommunicatorRecord {
  RecordLife life;
  Relaxed<uint64_t> comm_id;  // set late for API v1 to v3, which name it with the first operation
  Relaxed<int32_t> rank;
  Relaxed<int32_t> nranks;
  Relaxed<int32_t> nnodes;
  Relaxed<uint32_t> index;
  Relaxed<uint32_t> kernel_trust;  // TrustState
  Relaxed<uint32_t> series_count;
  Relaxed<int64_t> finalized_monotonic_ns;
  Relaxed<int64_t> init_realtime_ns;
  Relaxed<uint64_t> next_timed_call;
  HeartbeatCells heartbeat;             // background thread
  Relaxed<uint32_t> completion_source;  // CompletionSource
  Relaxed<uint32_t> captured;           // launching thread
  char name[128];  // identity strings: zero-terminated, written by CopyToShared
  char gpu[16];
  char uuid[48];
  char pci_bus_id[32];
  Relaxed<int32_t> nccl_api_version;  // of the NCCL that made it: a process may have several
  Relaxed<uint32_t> event_mask;       // that this NCCL was given
  // Calls since the last launch that NCCL reported, as the background thread last saw them, and
  // since when they stand alone; 0: none. Their launches cannot be seen, or have not been made.
  Cell unreported_calls;                  // UnreportedCallsBits
  Relaxed<uint64_t> unreported_since_ns;  // monotonic; published by the calls
  // The longest that the oldest launch in flight stood without progress and then completed, by
  // what was called last meanwhile. Background thread.
  LongWait long_waits[kLongWaits];
  // Replays of CUDA graphs (CommunicatorSnapshot). Background thread. The time is stored first and
  // read last: whoever reads something new of the others finds that something has just moved.
  Cell graph_replays;
  Cell graph_replays_in_flight;
  Cell graph_captures;  // GraphPlace, as the next one
  Cell graph_calls;
  Relaxed<uint64_t> graph_moved_ns;  // monotonic
  // The ring of its last calls, kNoPage from the first that it does not have. Published with the
  // state.
  BasicLastCallPages<StdAtomics, kLastCallPages> last_call_pages;
  // The first error of the driver from which its context does not recover (driver_error.h), 0: none
  // was seen; and when it was. Background thread.
  Cell driver_error;
  Relaxed<uint64_t> driver_error_ns;  // monotonic; published by the error
  // NCCL's own counter of finished work (plugin/cuda/work_proof.h). Background thread. The times are
  // stored first and read last, as those of replays.
  Cell work_status;                 // WorkStatus
  Cell work_operations;             // that replays of graphs executed
  Relaxed<uint64_t> work_moved_ns;  // monotonic
  Relaxed<uint64_t> work_longest_pause_ns;
  alignas(64) FollowedLaunches followed;
  alignas(64) Lane lanes[kLanes];
  SeriesEntry series[kSeriesPerCommunicator];
  TimedCall timed_calls[kTimedCalls];
  // The call of each second that all ranks pick: agreed_call.h. By the second's number.
  TimedCall calls_of_moments[kMoments];

  // Everything but its life and the claims of its lanes, as if it had never been used. By who holds
  // all lanes. Relaxed: published with the lanes, and with the state.
  void Reset() {
    ResetFields(comm_id, rank, nranks, nnodes, index, kernel_trust, series_count,
                finalized_monotonic_ns, init_realtime_ns, next_timed_call, completion_source,
                captured, name, gpu, uuid, pci_bus_id, nccl_api_version, event_mask,
                unreported_calls, unreported_since_ns, graph_replays, graph_replays_in_flight,
                graph_captures, graph_calls, graph_moved_ns, driver_error, driver_error_ns,
                work_status, work_operations, work_moved_ns, work_longest_pause_ns);
    for (LongWait& wait : long_waits) ResetFields(wait.what, wait.when);
    for (uint32_t i = 0; i < kLastCallPages; ++i) last_call_pages.Set(i, kNoPage);
    heartbeat.Reset();
    followed.Reset();
    for (Lane& lane : lanes) lane.Reset();
    for (SeriesEntry& entry : series) entry.Reset();
    for (TimedCall& call : timed_calls) call.Reset();
    for (TimedCall& call : calls_of_moments) call.Reset();
  }
};
inline constexpr uint64_t kRecordStride = sizeof(CommunicatorRecord);
static_assert(kRecordStride == 6016 && kRecordStride % 64 == 0,
              "cache lines of two records differ");
static_assert(offsetof(CommunicatorRecord, followed) ==
                  offsetof(CommunicatorRecord, work_longest_pause_ns) + sizeof(uint64_t),
              "no padding: the test of Reset looks at every byte");

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_LAYOUT_H_
