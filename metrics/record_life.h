// RecordLife holds the states of a communicator's record: free, live, finalized, and free again for
// the next communicator. Readers never stop the writer, so they check the generation before and
// after a copy. If it changed, the copy may mix two communicators and is dropped.
//
//   state      kFree --Publish--> kLive --Finalize--> kFinalized --End--> kFree ...
//   generation    +1 at Begin (before Publish)                      +1 at End
//
//   writer                                      reader
//   Begin    generation; identity               Enter   generation, state: if kFree, no record
//   Publish  state = kLive                              copy of what the record holds
//   End      state = kFree, generation, fence   IsSame  fence, generation again: if changed, the
//            zeros                                      copy mixes two owners, drop it
//
// A reader that copied a zero, or anything stored after it, sees another generation on the second
// read: the writer's fence is between the change and the zeros, the reader's fence between its copy
// and the second read.
//
// RecycleEpoch below works the same way. It tells a reader that a record's counts are being moved
// to the process' sums, so that it neither misses them nor reads them twice.
//
// Thread: writer: one at a time (the runtime's lock). Readers: any number, in any process. Cost:
// negligible; only init, finalize and the background thread change states.
// Explored by tests/model/recycling_test.cc.
#ifndef METRICS_RECORD_LIFE_H_
#define METRICS_RECORD_LIFE_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

enum class CommunicatorState : uint32_t { kFree = 0, kLive = 1, kFinalized = 2 };

template <typename Atomics>
class BasicRecordLife {
 public:
  // ---- writer ----

  // Call before storing a new owner's identity. Returns the generation with which to claim lanes.
  uint32_t Begin() {
    const uint32_t generation =
        generation_.load(std::memory_order_relaxed) + 1;  // the writer's own
    // Release: a reader that sees this generation finds the record free or published. If free, it
    // reads no further; if published, it sees the identity stored in between.
    generation_.store(generation, std::memory_order_release);
    return generation;
  }
  // Call after storing the identity.
  void Publish() {
    // Release: a reader that sees it live sees its identity.
    state_.store(Number(CommunicatorState::kLive), std::memory_order_release);
  }
  void Finalize() {
    // Release: a reader that sees it finalized sees the time and the last values stored before.
    state_.store(Number(CommunicatorState::kFinalized), std::memory_order_release);
  }
  // Call before zeroing the record, with all lanes held: a thread that claims one later sees the
  // new generation through the lane.
  void End() {
    // The state first: a reader that enters with the new generation finds the record free. Release:
    // a reader that finds it free sees the odd epoch, and does not take the sums for complete.
    state_.store(Number(CommunicatorState::kFree), std::memory_order_release);
    // Release: see above.
    generation_.store(generation_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    // Release: a reader that sees a zero sees the new generation.
    Atomics::Fence(std::memory_order_release);
  }
  // Relaxed: the writer's own.
  CommunicatorState state() const {
    return static_cast<CommunicatorState>(state_.load(std::memory_order_relaxed));
  }

  // ---- holder of a lane ----

  // Relaxed: the lane's claim orders it.
  bool IsOf(uint32_t generation) const {
    return generation_.load(std::memory_order_relaxed) == generation;
  }

  // ---- reader ----

  struct View {
    uint32_t generation;
    CommunicatorState state;
  };
  View Enter() const {
    // Acquire: a reader of generation n also sees the state stored before n, or a later state.
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    // Acquire: sees the identity; if free, the epoch.
    const uint32_t state = state_.load(std::memory_order_acquire);
    return {generation, static_cast<CommunicatorState>(state)};
  }
  // True if everything read since Enter belongs to one owner.
  bool IsSame(const View& view) const {
    // Acquire: the reads before it precede the second read.
    Atomics::Fence(std::memory_order_acquire);
    return IsOf(view.generation);
  }

 private:
  static constexpr uint32_t Number(CommunicatorState state) { return static_cast<uint32_t>(state); }

  typename Atomics::template Atomic<uint32_t> state_;
  typename Atomics::template Atomic<uint32_t> generation_;
};

// RecycleEpoch is odd while a record is recycled: its counts are being moved into the process'
// sums.
template <typename Atomics>
class BasicRecycleEpoch {
 public:
  // ---- writer ----

  // Call before the record's End.
  void Begin() {
    // Relaxed: End's stores of state and generation release it.
    epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Call when the sums are complete and the record is empty.
  void End() {
    // Release: reads that see this epoch see complete sums.
    epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // ---- reader ----

  uint64_t Enter() const { return epoch_.load(std::memory_order_acquire); }  // pairs with End
  // True if records and sums read since Enter belong together.
  bool IsWhole(uint64_t entered) const {
    // Acquire: the reads before it precede the second read.
    Atomics::Fence(std::memory_order_acquire);
    return entered % 2 == 0 && epoch_.load(std::memory_order_relaxed) == entered;
  }

 private:
  typename Atomics::template Atomic<uint64_t> epoch_;
};

using RecordLife = BasicRecordLife<StdAtomics>;
using RecycleEpoch = BasicRecycleEpoch<StdAtomics>;

}  // namespace nccl_pulse

#endif  // METRICS_RECORD_LIFE_H_
