// Counts for how many more groups of a communicator NCCL is asked to report the end.
//
// Such a group costs three more callbacks (two states and the stop). So the end is asked for only
// if launches that NCCL does not report may need it (launch_follower.h): at a communicator's first
// groups, and for long after each such launch. A communicator whose launches are all reported pays
// one look at a value on a cache line that its callbacks read in any case.
//
// Thread: Begin init; the rest the calling thread. Cost: a load, while it counts a store.
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
    left_.store(left - 1);
    return true;
  }
  // A call had no launch that NCCL reported.
  void Renew() {
    if (left_.load() < kAfterUnreported / 2) left_.store(kAfterUnreported);
  }

 private:
  Relaxed<uint32_t> left_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_AWAITED_ENDS_H_
