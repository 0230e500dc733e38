// The plugin's private memory of one communicator: which operations are open, and what their
// children did.
//
// Readers never see this; they see the record in the segment. It is allocated when a communicator
// slot is first used and never unmapped, so an event that comes after finalize meets a closed slot,
// not a fault.
//
// OperationSlot, a ring of them per communicator:
//
//   claim (fetch_add on next_operation) -> the slot's old operation, if still open, is settled
//     word = generation+1, kClaimed         the claimer alone writes the fields
//     word = generation+1, kOpen            published; children may come
//     ... children raise started / stopped, set flags, all by compare-and-swap on `word`
//     word without kOpen                    settled; nothing of it is counted any more
//
// Every change of `word` is a compare-and-swap that contains the generation, so a child of an old
// operation can not touch the slot's next one. Whoever takes kOpen away (or replaces the
// generation) settles the operation; the swap can succeed once.
#ifndef PLUGIN_TRACKER_COMMUNICATOR_H_
#define PLUGIN_TRACKER_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>

#include "metrics/name_table.h"
#include "metrics/segment_layout.h"
#include "plugin/cuda/stream_timer.h"
#include "plugin/tracker/ticket.h"
#include "plugin/tracker/unreported_calls.h"

namespace nccl_pulse {

// More than the 435 operations that a recorded run had open at once (groups of five, the GPU a
// hundred launches behind), and a size that keeps a communicator below 64 KiB with kernel timing
// on.
inline constexpr uint32_t kOperationSlots = 436;
static_assert(kOperationSlots <= 1u << Ticket::kOperationBits);

inline constexpr int kMaxChannels = 64;  // NCCL 2.28, MAXCHANNELS in src/include/device.h

// The operation's state in one word: generation:20 at bit 40, flags:8 at 32, started:16,
// stopped:16.
struct SlotWord {
  static constexpr uint64_t kOpen = uint64_t{1} << 32;
  // Coll or P2p was stopped; or it is the communicator's last, and PendingLaunch knows.
  static constexpr uint64_t kEnqueued = uint64_t{1} << 33;
  static constexpr uint64_t kKernelSeen = uint64_t{1} << 34;  // a channel has started
  static constexpr uint64_t kKernelDone = uint64_t{1} << 35;  // all channels have stopped
  static constexpr uint64_t kClaimed = uint64_t{1} << 36;     // its fields are being written
  static constexpr uint64_t kCaptured = uint64_t{1} << 37;    // called into a CUDA graph
  static constexpr uint64_t kOneStarted = uint64_t{1} << 16;
  static constexpr uint64_t kOneStopped = 1;

  static constexpr uint64_t kStartedMask = uint64_t{0xffff} << 16;

  static constexpr uint32_t Generation(uint64_t word) { return static_cast<uint32_t>(word >> 40); }
  // Nothing but the generation after that of `word`.
  static constexpr uint64_t NextGeneration(uint64_t word) {
    constexpr uint64_t kOne = uint64_t{1} << 40;
    return (word + kOne) & uint64_t{Ticket::kGenerationMask} << 40;
  }
  static constexpr uint32_t Started(uint64_t word) { return word >> 16 & 0xffff; }
  static constexpr uint32_t Stopped(uint64_t word) { return word & 0xffff; }
};

struct OperationSlot {
  std::atomic<uint64_t> word;
  std::atomic<uint64_t> last_stop;  // LastStop, of the last ProxyOp to stop
  std::atomic<uint64_t> enqueue_ns;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> meta;             // OperationMeta
  std::atomic<uint64_t> stopped_proxies;  // bit i: ProxyOp number i; only to see repeated stops
};
static_assert(sizeof(OperationSlot) == 48);

// OperationSlot::last_stop: generation's low 12 bits, then ns since enqueue. The tag shows a store
// that came late, from a child of the slot's previous operation.
struct LastStop {
  static constexpr uint64_t kDeltaBits = 52;
  static constexpr uint64_t kDeltaMask = (uint64_t{1} << kDeltaBits) - 1;

  static constexpr uint64_t TagOf(uint32_t generation) { return generation & 0xfff; }
  static constexpr uint64_t Pack(uint32_t generation, uint64_t delta_ns) {
    return TagOf(generation) << kDeltaBits | (delta_ns < kDeltaMask ? delta_ns : kDeltaMask);
  }
  static constexpr uint64_t Tag(uint64_t bits) { return bits >> kDeltaBits; }
  static constexpr uint64_t DeltaNs(uint64_t bits) { return bits & kDeltaMask; }
};

// When an operation's first network step moved data: generation:20, then ns since enqueue. Of an
// older generation: none did yet. Only network steps write it, so it costs nothing while none are
// watched.
struct FirstMove {
  static constexpr uint64_t kDeltaBits = 44;
  static constexpr uint64_t kDeltaMask = (uint64_t{1} << kDeltaBits) - 1;

  static constexpr uint64_t Pack(uint32_t generation, uint64_t delta_ns) {
    return uint64_t{generation} << kDeltaBits | (delta_ns < kDeltaMask ? delta_ns : kDeltaMask);
  }
  static constexpr uint32_t Generation(uint64_t bits) {
    return static_cast<uint32_t>(bits >> kDeltaBits);
  }
  static constexpr uint64_t DeltaNs(uint64_t bits) { return bits & kDeltaMask; }
};

struct OperationMeta {
  uint8_t op;
  uint8_t size_class;
  uint8_t channels;  // 0: not known
  bool untimed;      // already counted as untimed: no kernel time is expected
  uint32_t call_number;

  uint64_t Pack() const {
    return uint64_t{op} | uint64_t{size_class} << 8 | uint64_t{channels} << 16 |
           uint64_t{untimed} << 24 | uint64_t{call_number} << 32;
  }
  static OperationMeta Unpack(uint64_t bits) {
    return {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8),
            static_cast<uint8_t>(bits >> 16), (bits >> 24 & 1) != 0,
            static_cast<uint32_t>(bits >> 32)};
  }
};

// GPU times of one operation's channels, kernel timing only. Written by one thread: NCCL makes all
// KernelCh callbacks of a communicator on one thread (docs/nccl-profiler-api.md#threads). The
// fields are atomics all the same, so that a NCCL which breaks that costs accuracy, not memory
// safety. Whoever settles may read it.
struct KernelTimes {
  std::atomic<uint64_t>
      tag;  // kUsed | flags | stopped << 40 | generation << 16 | channels; 0: never used
  std::atomic<uint64_t> first_start_ns, last_start_ns, first_stop_ns, last_stop_ns;
  // A channel's state in two masks: started = (1, 0), stop time known = (1, 1), stopped = (0, 1).
  std::atomic<uint64_t> mask_a, mask_b;

  static constexpr uint64_t kUsed = uint64_t{1} << 63;
  static constexpr uint64_t kBackwards = uint64_t{1}
                                         << 62;  // a start older than its channel's previous one
  static constexpr uint64_t kTimeMissing = uint64_t{1} << 61;  // a channel stopped without a time
  static constexpr uint64_t kFlags = kBackwards | kTimeMissing;
  static constexpr uint64_t MakeTag(uint32_t generation, uint8_t channels) {
    return kUsed | uint64_t{generation} << 16 | channels;
  }
  static constexpr bool IsOf(uint64_t tag, uint32_t generation) {
    return (tag & kUsed) != 0 && (tag >> 16 & Ticket::kGenerationMask) == generation;
  }
  static constexpr uint64_t kOneStopped = uint64_t{1} << 40;
  static constexpr uint32_t Channels(uint64_t tag) { return static_cast<uint8_t>(tag); }
  static constexpr uint32_t Stopped(uint64_t tag) { return tag >> 40 & 0xff; }
};
static_assert(sizeof(KernelTimes) == 56);

// Of a whole communicator, kernel timing only; written by the KernelCh thread.
struct KernelTrust {
  std::atomic<uint64_t> failed_history;  // bit 0: the newest multi-channel operation; 1: failed
  std::atomic<uint64_t> last_start_ns[kMaxChannels];
};

// What the launching thread knows between a call and its launch. NCCL serialises the calls and
// launches of one communicator (a non-blocking one launches on another thread, after its call), so
// there is one writer at a time; relaxed atomics, so that a NCCL which breaks that costs accuracy
// alone.
//
// Callbacks find the caches full of NCCL's and the driver's own data, so what they cost is the
// number of lines they touch: a launch that is not sampled touches the first line alone.
struct alignas(64) PendingLaunch {
  std::atomic<uint64_t> next_operation;  // number of the next Coll or P2p, over all communicators
                                         // that had this place
  std::atomic<uint64_t> group;           // that the calls belong to, Tracker::ThisGroup
  std::atomic<uint64_t> bytes;           // of the calls since the last launch
  std::atomic<uint64_t> meta;            // OperationMeta of the last call; call_number: its number
  std::atomic<uint64_t> unstopped;       // ticket of the last Coll or P2p until it is stopped, or 0
  std::atomic<CudaStream> stream;        // that the launch which is being made is made on
  std::atomic<uint32_t> calls;           // since the last launch
  std::atomic<uint32_t> launch_number;   // tells the launch's ticket from the next one's
  std::atomic<uint16_t> pair;            // timed pair of the launch made last, kNoPair: none
  std::atomic<uint8_t> fate;             // of the operations of the launch made last, LaunchFate
  std::atomic<bool> sampled;             // the last call
  std::atomic<bool> is_open;             // a launch is being made
  std::atomic<bool> is_kernel;           // the launch that is being made, not of the copy engines
  std::atomic<bool> is_eager;            // its stream is known not to be in capture
  std::atomic<bool> is_unhurried;        // the next launch may have a gate (stream_timer.h)
  // ---- line
  alignas(64) std::atomic<uint64_t> bus_bytes;  // of the calls, once there are several
  std::atomic<uint64_t>
      grouped_launches;  // launches of several operations: sampled by their own count
  // Serials number the sampled calls, never 0, as their tickets carry them (kGenerationBits).
  std::atomic<uint32_t> serial;  // of the last one
  // Of the calls that were timed alone last, so many as there are pairs: a CUDA host callback may
  // report an operation long after its launch, but not after its pair was used again.
  std::atomic<uint32_t> timed_serials[kTimedPairs];
  std::atomic<uint32_t>
      timed_calls;  // their number; the last is at (timed_calls - 1) % kTimedPairs
  std::atomic<uint32_t> reported_serial;  // of the sampled operation that NCCL reported last
};
static_assert(sizeof(PendingLaunch) == 128);
inline constexpr uint32_t kNoPair = 0xff;

// 0, or the UntimedReason of its operations.
enum class LaunchFate : uint8_t {
  kTimed = 0,  // a single operation, of timed_serials: it has the launch's duration
  kNotTimed = static_cast<uint8_t>(UntimedReason::kNotTimed),  // no stream timing
  kNotSampled = static_cast<uint8_t>(UntimedReason::kNotSampled),
  // Several: the launch has a duration, they have none of their own.
  kGrouped = static_cast<uint8_t>(UntimedReason::kGrouped),
  // An operation alone: called into a CUDA graph.
  kCaptured = static_cast<uint8_t>(UntimedReason::kCaptured),
};

// Calls so far by operation and size class: the call number that sampling goes by.
inline constexpr int kCallColumns = 12;
// Which operations are in flight, where no events follow the launches (tracker_inflight.cc).
// Background thread.
struct InflightOperations {
  uint32_t record_generation;  // of the communicator that the rest is about
  bool ends_are_seen;          // an operation's end has been seen
  uint64_t newest_ended_ns;    // enqueue of the newest operation that has ended
  uint64_t oldest_operation;   // number of the oldest in flight
  uint64_t oldest_ns;          // its enqueue, 0: none
};

// The oldest launch in flight, while nothing completes. Background thread.
struct Standstill {
  uint32_t record_generation;  // of the communicator that the rest is about
  uint64_t since_ns;           // 0: something completes, or nothing is in flight
  uint64_t seen_ns;            // when it was last seen to last
  uint32_t row;                // OperationRowOf what was called last then
};

// Replays of the graphs that have calls of a communicator, as one look at the stamps found them.
// Background thread.
struct GraphReplays {
  uint32_t record_generation;  // of the communicator that the rest is about
  uint64_t look;               // number of the look, 0: none found anything
  uint64_t in_flight;
  uint64_t moved_ns;  // when a stamp was last passed
};

// Calls that were captured and not launched yet, where graphs are followed. Writers and orderings:
// as PendingLaunch.
struct CapturedLaunch {
  std::atomic<uint32_t> calls;
  std::atomic<uint32_t> kind;  // CapturedCalls, of the last call
  std::atomic<uint64_t> bytes, bus_bytes;
  std::atomic<CudaStream> stream;  // of a launch whose stop is waited for, null: of none
};

// What follows the calls and launches of one communicator.
struct LaunchState {
  PendingLaunch pending;
  UnreportedCalls unreported;
  CapturedLaunch captured;
  CommunicatorTimer timer;
  std::atomic<uint32_t> call_numbers[kOperationRows][kCallColumns];
};

struct alignas(64) Communicator {
  std::atomic<uint64_t> context;  // the ticket that is valid now, 0: none (finalized or never used)
  std::atomic<uint32_t> record_generation;
  uint32_t index;  // of this slot and of its record
  CommunicatorRecord* record;
  OperationSlot* operations;            // kOperationSlots, null until first used
  LaunchState* launching;               // null until first used
  std::atomic<uint64_t> sampling_seed;  // Sampler::SeedOf
  std::atomic<int32_t> rank, nranks;
  uint64_t first_ticket;  // Ticket::OfOperation
  // ---- line: what is above is all that the callbacks of a launch read
  InflightOperations inflight;            // background thread
  StandingCalls standing;                 // background thread
  Standstill standstill;                  // background thread
  GraphReplays graphs;                    // background thread
  bool uncounted_seen;                    // background thread: FollowedLaunches::uncounted_call
  std::atomic<uint64_t>* first_moves;     // FirstMove, kOperationSlots; null with kernel timing
  KernelTimes* kernel_times;              // kOperationSlots, null unless kernel timing
  KernelTrust* kernel_trust;              // null unless kernel timing
  uint32_t context_generation;            // init lock
  uint64_t recycle_after_ns;              // init lock; a lane stayed busy at the last attempt
  std::atomic<bool> identity_known;       // v1 to v3 learn it with the first operation
  std::atomic<uint64_t> first_operation;  // number of this communicator's first
  std::atomic<uint64_t>
      oldest_open;  // background thread: operations before this number are settled
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMMUNICATOR_H_
