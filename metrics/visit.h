// Visit lets the threads that call and launch write to a communicator's record without claiming a
// lane (lane_claim.h), while the record cannot be recycled for another communicator.
//
// NCCL serializes the calls of a communicator, and its launches. So each cell that these threads
// add to has one writer at a time without a claim. A claim, the only read-modify-write in these
// callbacks, would only keep the recycler out. A visit does so at a lower cost, because the
// recycler executes the full fence for both sides:
//
//   visitor, in a callback                recycler, after the communicator was closed
//   there = 1
//   light fence                           heavy fence
//   is the communicator still valid?      there == 0: no visitor is there, and none will come
//   no: there = 0, and write nothing      else another attempt, later
//   ...
//   there = 0
//
// With a full fence on each side, at least one side sees the other's store: the visitor finds the
// communicator closed, or the recycler finds the visitor. The heavy fence is membarrier(2): when it
// returns, each running thread of the process has executed a full fence since the call. So the
// light fence only keeps the compiler from moving the two accesses. If the kernel refuses
// membarrier from the start (an old kernel, or a seccomp filter), both are full fences, as
// expensive as a claim. If it refuses later, nothing is recycled.
//
// Thread: Begin and End: one visitor at a time; IsOver: any. Cost of a visit: two stores.
// Explored by tests/model/visit_test.cc.
#ifndef METRICS_VISIT_H_
#define METRICS_VISIT_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

template <typename Atomics>
class BasicVisit {
 public:
  // Call before the first visit.
  void Prepare() { is_even_ = Atomics::FencesAreEven(); }

  // After this, check the communicator's ValidContext, which the recycler closes. If it is closed,
  // call End.
  void Begin() {
    is_there_.store(1, std::memory_order_relaxed);  // ordered by the fence
    Atomics::LightFence(is_even_);                  // before that check; pairs with IsOver's
  }
  void End() {
    is_there_.store(0, std::memory_order_release);  // a recycler that sees it sees the cells
  }
  // True if no visitor is there or will come. Call after closing what visitors check.
  bool IsOver() const {
    if (!Atomics::HeavyFence()) return false;               // after the closing; pairs with Begin's
    return is_there_.load(std::memory_order_acquire) == 0;  // sees the cells
  }

  // A visit from here to the end of the block.
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
