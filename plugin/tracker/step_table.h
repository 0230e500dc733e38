// The network steps that are under way: what each waits for and since when, and what it has come to
// so far.
//
// A process has one table, a ring: a step gets the next place that nobody needs. Some places are
// never given back: NCCL starts some receives several times and stops them once, and an abort stops
// nothing. Such a place is needed until its operation has ended. A step that waits long, for a late
// rank say, keeps its place: the table is there for just that one.
//
// When kStepProbes places in a row are needed, the last of them is taken. Some 4,000 steps are then
// under way, or left behind in operations that go on; NCCL has at most 8 under way for a connection
// and channel. The step that loses its place is not counted; its later callbacks are counted as
// those of a stale handle.
//
//   claim:   word = generation+1, kClaimed     the claimer alone writes the fields
//            word = generation+1, kStarted     published
//   states:  word = generation, next phase     by compare-and-swap: who succeeds writes the fields
//   stop:    word = generation, kFree          by compare-and-swap: who succeeds counts the step
//
// A step's callbacks come on one thread, one after another. Atomics all the same: with a NCCL that
// breaks that, or handles at random, numbers go wrong and nothing else.
//
// Thread: any. Cost: one read-modify-write on a shared cursor per step, else on the step's own
// cache line. 256 KiB, made when steps are first watched.
#ifndef PLUGIN_TRACKER_STEP_TABLE_H_
#define PLUGIN_TRACKER_STEP_TABLE_H_

#include <atomic>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

// What a step is doing. In the order in which NCCL reports it, within each direction.
enum class StepPhase : uint32_t {
  kFree = 0,
  kClaimed,
  kStarted,       // no state was recorded yet
  kSendGpu,       // state 8: waits for the GPU's data
  kSendPeer,      // state 20: offers it to the network, which waits for the peer's credit
  kSendWire,      // state 9: posted
  kReceiveWire,   // state 10: waits for the data
  kReceiveFlush,  // state 11: it has arrived, and is made visible to the GPU
  kReceiveGpu,    // state 12: waits for the GPU to take it
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
  Relaxed<uint64_t> proxy_op;  // ticket of the ProxyOp that it belongs to
  Relaxed<uint64_t> since_ns;  // the phase began
  Relaxed<uint64_t> bytes;
  Relaxed<uint64_t> first_wait_ns;      // of a send for the GPU, of a receive on the wire
  Relaxed<uint64_t> second_wait_ns;     // of a send for the peer, of a receive for the flush
  Relaxed<uint32_t> record_generation;  // of the communicator
  Relaxed<uint32_t> callbacks;
};
static_assert(sizeof(StepSlot) == 64, "a cache line each: steps of two threads are neighbours");

// What a step that has ended came to.
struct StepTotals {
  uint64_t proxy_op;
  uint32_t record_generation;
  uint32_t callbacks;
  NetworkDirection direction;
  uint64_t bytes;
  uint64_t wait_ns[kNetworkWaits];  // by NetworkWait
  uint64_t ended_ns;
};

// Few: each costs a shared read-modify-write, and only steps that wait make a second one needed.
inline constexpr int kStepProbes = 4;

struct StepTable {
  static constexpr uint32_t kPlaces = 4096;
  static_assert(kPlaces <= Ticket::kStepMask + 1);

  StepSlot slots[kPlaces];
  alignas(64) Relaxed<uint32_t> next;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_STEP_TABLE_H_
