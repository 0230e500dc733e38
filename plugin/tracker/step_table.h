// The network steps that are under way: when each began to wait for what it waits for now, and what
// it has come to so far.
//
// One table a process, a ring: a step gets the next place of which nobody needs what is there. A
// place that was never given back (NCCL starts some receives several times and stops them once; an
// abort stops nothing) is needed until its operation has ended, and one whose operation goes on is
// passed over: a step that waits for long, for a late rank say, is what the table is there for.
// When kStepProbes places in a row are needed, some 4,000 steps are under way or left behind within
// operations that go on: the last of them is taken. Its step is then not counted, and its later
// callbacks are, as of a stale handle. NCCL has at most 8 steps of a connection and channel under
// way.
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

#include "metrics/snapshot.h"
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
  std::atomic<uint64_t> word;      // StepWord
  std::atomic<uint64_t> proxy_op;  // ticket of the ProxyOp that it belongs to
  std::atomic<uint64_t> since_ns;  // the phase began
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> first_wait_ns;      // of a send for the GPU, of a receive on the wire
  std::atomic<uint64_t> second_wait_ns;     // of a send for the peer, of a receive for the flush
  std::atomic<uint32_t> record_generation;  // of the communicator
  std::atomic<uint32_t> callbacks;
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
};

// Few: each costs a shared read-modify-write, and only steps that wait make a second one needed.
inline constexpr int kStepProbes = 4;

struct StepTable {
  static constexpr uint32_t kPlaces = 4096;
  static_assert(kPlaces <= Ticket::kStepMask + 1);

  StepSlot slots[kPlaces];
  alignas(64) std::atomic<uint32_t> next;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_STEP_TABLE_H_
