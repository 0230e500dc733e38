// Counts for how many more groups of a communicator NCCL is asked to report the end.
//
// Such a group costs three more callbacks (two states and the stop). So the end is asked for only
// if launches that NCCL does not report may need it (launch_follower.h): at a communicator's first
// groups, and for long after each such launch. A communicator whose launches are all reported pays
// one look at a value on a cache line that its callbacks read in any case.
//
// While such a group has not ended, its thread is inside NCCL, or the application has not ended it.
//
// Thread: Begin init; is_open any; the rest the calling thread. Cost: a load, while it counts a store.
#ifndef PLUGIN_TRACKER_AWAITED_ENDS_H_
#define PLUGIN_TRACKER_AWAITED_ENDS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class AwaitedEnds {
 public:
  static constexpr uint32_t kFirst = 256;
  static constexpr uint32_t kAfterUnreported = 65536;

  // `follows`: there are events to put behind a launch.
  void Begin(bool follows) { left_.store(follows ? kFirst : 0); }
  bool are_awaited() const { return left_.load() != 0; }
  // Says whether NCCL is asked for the end of the group that begins now.
  [[gnu::hot]] bool Take() {
    const uint32_t left = left_.load();
    if (__builtin_expect(left == 0, 1)) return false;
    const uint32_t groups = left & ~kOpen;
    // None is left, and the last one's end has not come.
    left_.store(groups == 0 ? 0 : (groups - 1) | kOpen);
    return groups != 0;
  }
  // It has ended.
  void End() { left_.store(left_.load() & ~kOpen); }
  bool is_open() const { return (left_.load() & kOpen) != 0; }
  // A call had no launch that NCCL reported.
  void Renew() {
    const uint32_t left = left_.load();
    if ((left & ~kOpen) < kAfterUnreported / 2) left_.store(kAfterUnreported | (left & kOpen));
  }

 private:
  static constexpr uint32_t kOpen = 1u << 31;  // such a group has begun, and not ended
  Relaxed<uint32_t> left_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_AWAITED_ENDS_H_
