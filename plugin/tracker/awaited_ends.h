// AwaitedEnds holds the number of further groups whose end NCCL is asked to report.
//
// Asking costs three more callbacks per group (two states and the stop). So the plugin asks only
// where a launch may be unreported (launch_follower.h): at a communicator's first groups, and for
// many groups after each unreported launch. Other communicators pay for one load from a cache line
// that callbacks read anyway.
//
// The object also knows whether such a group is open, that is, started and not ended: its thread is
// then inside NCCL, or the application has not ended the group.
//
// Thread: Begin init; is_open any; the rest the calling thread. Cost: a load, and a store while
// counting.
#ifndef PLUGIN_TRACKER_AWAITED_ENDS_H_
#define PLUGIN_TRACKER_AWAITED_ENDS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class AwaitedEnds {
 public:
  static constexpr uint32_t kFirst = 256;              // a communicator's first groups
  static constexpr uint32_t kAfterUnreported = 65536;  // groups after an unreported launch

  // `follows`: launches are followed with CUDA events.
  void Begin(bool follows) { left_.store(follows ? kFirst : 0); }
  bool are_awaited() const { return left_.load() != 0; }
  // Call at the start of a group. Returns true if NCCL is to report its end.
  [[gnu::hot]] bool Take() {
    const uint32_t left = left_.load();
    if (__builtin_expect(left == 0, 1)) return false;
    const uint32_t groups = left & ~kOpen;
    // Without further groups, only the flag of the last one is cleared.
    left_.store(groups == 0 ? 0 : (groups - 1) | kOpen);
    return groups != 0;
  }
  // Call at the end of a group for which Take() returned true.
  void End() { left_.store(left_.load() & ~kOpen); }
  bool is_open() const { return (left_.load() & kOpen) != 0; }
  // Call if NCCL did not report the launch of a call.
  void Renew() {
    const uint32_t left = left_.load();
    if ((left & ~kOpen) < kAfterUnreported / 2) left_.store(kAfterUnreported | (left & kOpen));
  }

 private:
  static constexpr uint32_t kOpen = 1u << 31;  // set while a group from Take() is open
  Relaxed<uint32_t> left_;                     // number of further groups, and kOpen
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_AWAITED_ENDS_H_
