// StepTable holds the network steps in progress: their current wait, since when, and totals so far.
//
// A process has one table: a ring and a reserve. Some steps never stop: NCCL starts some receives
// several times and stops them once, and an abort stops no step. Such a step occupies its place
// until its operation has ended.
//
// A new step tries kProbes places of the ring, far apart, because the steps of a connection are
// neighbors. So a step that waits long, for example for a late rank, keeps its place in the ring.
// If all these places are in use, the new step replaces a step of the reserve, in turn. The
// replaced step is not counted. Its later callbacks are ignored, as those of a stale handle.
//
//   claim:   word = generation+1, kClaimed     only the claimer writes the fields
//            word = generation+1, kStarted     published
//   states:  word = generation, next phase     by compare-and-swap: the winner writes the fields
//   stop:    word = generation, kFree          by compare-and-swap: the winner counts the step
//
// A step's callbacks come on one thread, in order. The fields are atomics all the same: with an
// NCCL that breaks this, or with random handles, only numbers are wrong.
//
// Thread: any. Cost: one read-modify-write on a shared cursor per step; all other accesses are to
// its own cache line. 256 KiB, allocated when steps are first watched.
#ifndef PLUGIN_TRACKER_STEP_TABLE_H_
#define PLUGIN_TRACKER_STEP_TABLE_H_

#include <atomic>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

// The phase of a step, in the order in which NCCL reports them, per direction.
enum class StepPhase : uint32_t {
  kFree = 0,
  kClaimed,
  kStarted,       // no state was recorded yet
  kSendGpu,       // state 8: waits for the GPU's data
  kSendPeer,      // state 20: the network was offered the data, and waits for the peer's credit
  kSendWire,      // state 9: posted
  kReceiveWire,   // state 10: waits for the data
  kReceiveFlush,  // state 11: data has arrived, and is made visible to the GPU
  kReceiveGpu,    // state 12: waits for the GPU to take the data
};

struct StepWord {
  static constexpr uint32_t kPhaseBits = 8;

  static constexpr uint64_t Pack(uint32_t generation, StepPhase phase) {
    return uint64_t{generation} << kPhaseBits | static_cast<uint32_t>(phase);
  }
  static constexpr uint32_t Generation(uint64_t word) {
    return static_cast<uint32_t>(word >> kPhaseBits) & Ticket::kGenerationMask;
  }
  static constexpr StepPhase Phase(uint64_t word) {
    return static_cast<StepPhase>(word & ((1u << kPhaseBits) - 1));
  }
};

struct alignas(64) StepSlot {
  std::atomic<uint64_t> word;  // StepWord
  Relaxed<uint64_t> proxy_op;  // ticket of the step's ProxyOp
  Relaxed<uint64_t> since_ns;  // begin of the phase
  Relaxed<uint64_t> bytes;
  Relaxed<uint64_t> first_wait_ns;      // of a send for the GPU, of a receive for the data
  Relaxed<uint64_t> second_wait_ns;     // of a send for the peer, of a receive for the flush
  Relaxed<uint32_t> record_generation;  // of the communicator
  Relaxed<uint32_t> callbacks;          // number so far
};
static_assert(sizeof(StepSlot) == 64, "a cache line each: steps of two threads are neighbours");

// The totals of an ended step.
struct StepTotals {
  uint64_t proxy_op;
  uint32_t record_generation;
  uint32_t callbacks;
  NetworkDirection direction;
  uint64_t bytes;
  uint64_t wait_ns[kNetworkWaits];  // by NetworkWait
  uint64_t ended_ns;
};

struct StepTable {
  static constexpr uint32_t kSlots = 4096;
  static constexpr uint32_t kReserve = 1024;
  static constexpr uint32_t kRing = kSlots - kReserve;
  static constexpr uint32_t kProbes = 3;
  static_assert(kSlots <= Ticket::kStepMask + 1);

  // Returns the place that the step with this number tries after `probe` others.
  static constexpr uint32_t PlaceOf(uint32_t number, uint32_t probe) {
    return probe < kProbes ? (number + probe * (kRing / kProbes)) % kRing
                           : kRing + number % kReserve;
  }

  StepSlot slots[kSlots];
  alignas(64) Relaxed<uint32_t> next;  // number of the next step
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_STEP_TABLE_H_
