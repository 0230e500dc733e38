// The states of a communicator's record: free, live, finalized, and free again for the next
// communicator. Readers never stop the writer, so they look twice: if the generation has changed in
// between, what they copied may belong to two communicators, and they drop it.
//
//   state      kFree --Publish--> kLive --Finalize--> kFinalized --End--> kFree ...
//   generation    +1 at Begin (before Publish)                      +1 at End
//
//   writer                                      reader
//   Begin    generation; identity               Enter   generation, state: kFree? not this one
//   Publish  state = kLive                              copy of what the record holds
//   End      state = kFree, generation, fence   IsSame  fence, generation once more: another one?
//            zeroes                                     the copy mixes two owners, drop it
//
// A reader that copied a zero, or anything that was stored after it, sees another generation when
// it looks again: the writer's fence lies between the change and the stores, the reader's between
// its copy and the second look.
//
// The epoch below works in the same way. It shows a reader that a record is just being moved into
// the process' sums, so that nothing is missing between the two.
//
// Thread: writer: one at a time (the runtime's lock). Readers: any number, also of other processes.
// Cost: none worth a word; only init, finalize and the background thread change states.
// Explored by //tests/model:recycling_test.
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

  // Before a new owner's identity is stored. Returns the generation that lanes are claimed with.
  uint32_t Begin() {
    const uint32_t generation =
        generation_.load(std::memory_order_relaxed) + 1;  // the writer's own
    // Release: a reader that enters with it finds the record free, or published. It sees what
    // follows only once the state is published, or after it has seen the generation of End.
    generation_.store(generation, std::memory_order_release);
    return generation;
  }
  // After it.
  void Publish() {
    // Release: who sees it live sees its identity.
    state_.store(Number(CommunicatorState::kLive), std::memory_order_release);
  }
  void Finalize() {
    // Release: who sees it finalized sees since when, and what was settled last.
    state_.store(Number(CommunicatorState::kFinalized), std::memory_order_release);
  }
  // Before what the record holds is zeroed. The caller holds all lanes: whoever claims one later
  // sees the new generation through the lane.
  void End() {
    // The state first: a reader that enters with the new generation finds the record free. Release:
    // one that finds it free sees the odd epoch, and does not take the sums for whole.
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

  // ---- whoever holds a lane ----

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
    // Acquire: of a later generation it would see the state that goes with it, or a later one.
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    // Acquire: sees the identity; a free one: the epoch.
    const uint32_t state = state_.load(std::memory_order_acquire);
    return {generation, static_cast<CommunicatorState>(state)};
  }
  // Whether all that was read since is of one owner.
  bool IsSame(const View& view) const {
    // Acquire: what was read before it comes before the second look.
    Atomics::Fence(std::memory_order_acquire);
    return IsOf(view.generation);
  }

 private:
  static constexpr uint32_t Number(CommunicatorState state) { return static_cast<uint32_t>(state); }

  typename Atomics::template Atomic<uint32_t> state_;
  typename Atomics::template Atomic<uint32_t> generation_;
};

// Odd while a record is recycled: what it had counted is on its way into the process' sums.
template <typename Atomics>
class BasicRecycleEpoch {
 public:
  // ---- writer ----

  // Before the record's End.
  void Begin() {
    // Relaxed: End's stores of state and generation release it.
    epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // After the sums are whole and the record is empty.
  void End() {
    // Release: what is read from now on is whole.
    epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // ---- reader ----

  uint64_t Enter() const { return epoch_.load(std::memory_order_acquire); }  // pairs with End
  // Whether records and sums that were read since belong together.
  bool IsWhole(uint64_t entered) const {
    // Acquire: what was read before it comes before the second look.
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
