// With this the threads that call and launch write to a record without a claim, while nobody gives it
// to the next communicator.
//
// NCCL serialises the calls of a communicator, and its launches, so each of the cells that they add
// to has one writer at a time without a lane's claim (lane_claim.h), which would be the only
// read-modify-write in these callbacks. What a claim also does is to keep the recycler out. A visit
// does that for less, because its full fence is paid for by who recycles:
//
//   visitor, in a callback                who recycles, after the communicator was closed
//   there = 1
//   light fence                           heavy fence
//   is the communicator still valid?      there == 0? nobody is there, and none will come
//   no: there = 0, and nothing else       else another attempt, later
//   ...
//   there = 0
//
// Of two full fences, one on each side, one at least would see the other's store: the visitor finds
// the communicator closed, or the recycler finds the visitor. The heavy fence is membarrier(2):
// when it returns, each running thread of the process has gone through a full fence since it was
// called. So the light one only keeps the compiler from moving the two accesses. Where the kernel
// refuses membarrier from the start (an old one, or a filter of system calls), both are full
// fences, as dear as a claim. Where it refuses later, nobody recycles.
//
// Thread: Begin and End: one visitor at a time; IsOver: any. Cost of a visit: two stores.
// Explored by //tests/model:visit_test.
#ifndef METRICS_VISIT_H_
#define METRICS_VISIT_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

template <typename Atomics>
class BasicVisit {
 public:
  // Comes before the first visit.
  void Prepare() { is_even_ = Atomics::FencesAreEven(); }

  // To be followed by a look at what the recycler has closed; if it is closed, by End.
  void Begin() {
    is_there_.store(1, std::memory_order_relaxed);  // ordered by the fence
    Atomics::LightFence(is_even_);                  // before that look; pairs with IsOver's
  }
  void End() {
    is_there_.store(0, std::memory_order_release);  // who finds it over sees the cells
  }
  // Whether nobody is there, nor will be. For who has closed what visitors look at.
  bool IsOver() const {
    if (!Atomics::HeavyFence()) return false;  // behind the closing; pairs with Begin's
    return is_there_.load(std::memory_order_acquire) == 0;  // sees the cells
  }

  // From here to the end of the block.
  class Stay {
   public:
    explicit Stay(BasicVisit& visit) : visit_(visit) { visit_.Begin(); }
    ~Stay() { visit_.End(); }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    BasicVisit& visit_;
  };

 private:
  typename Atomics::template Atomic<uint8_t> is_there_;
  bool is_even_ = false;  // both fences are full: membarrier was refused
};

using Visit = BasicVisit<StdAtomics>;

}  // namespace nccl_pulse

#endif  // METRICS_VISIT_H_
