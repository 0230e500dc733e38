// LaneClaim gives a lane (one of the four sets of counters of a communicator) to one thread at a
// time, for the length of one callback.
//
// The holder adds to its lane's cells without a read-modify-write (Relaxed and Ordered in
// atomic_cell.h). That is sound because it sees the cells as the previous holder left them: a
// holder's release pairs with the next holder's acquire.
//
// Thread: any. Cost: one compare-and-swap to claim, one store to release. No thread waits here.
// Explored by tests/model/lane_claim_test.cc.
#ifndef METRICS_LANE_CLAIM_H_
#define METRICS_LANE_CLAIM_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

template <typename Atomics>
class BasicLaneClaim {
 public:
  // False if the lane is held.
  bool TryClaim() {
    uint32_t expected = kFree;
    // Acquire: sees the cells as the last holder left them. A failed claim reads nothing.
    return owner_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  // Holder only.
  void Release() {
    // Release: the next holder sees this one's cells.
    owner_.store(kFree, std::memory_order_release);
  }
  // For tests: the answer may be stale at once.
  bool is_held() const { return owner_.load(std::memory_order_relaxed) == kHeld; }

 private:
  static constexpr uint32_t kFree = 0, kHeld = 1;

  typename Atomics::template Atomic<uint32_t> owner_;
};

using LaneClaim = BasicLaneClaim<StdAtomics>;

}  // namespace nccl_pulse

#endif  // METRICS_LANE_CLAIM_H_
