// HeartbeatCells hold the progress of a communicator's launches as the background thread last saw
// it: how many have completed, and the age and state of the oldest launch in flight.
//
// The writer publishes the number of completed launches last, and the reader reads it first. So a
// reader never finds the age of a launch that this number includes. If it then reads the number of
// launches made, that is not smaller: a thread counts its launch before the background thread can
// see it complete.
//
// Thread: Store: the background thread, while it holds a lane of the communicator's record
// (lane_claim.h); Read: any.
// Explored by tests/model/handover_test.cc.
#ifndef METRICS_HEARTBEAT_H_
#define METRICS_HEARTBEAT_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

// State of the oldest launch in flight on the GPU, with the launch's number, so that a reader does
// not apply it to another launch. 0: not known.
//
//   bit  63                       2 1                             0
//        |  number of the launch  | OldestLaunch, or a code below |
//                    62                           2
struct OldestLaunchBits {
  static constexpr uint64_t kIsUntold = 0;    // in place of OldestLaunch::kUntold
  static constexpr uint64_t kIsAtLaunch = 3;  // kBegun, and the launch is known to be incomplete

  static constexpr uint64_t Pack(uint64_t launch, OldestLaunch oldest, bool is_at_launch) {
    if (oldest == OldestLaunch::kUnknown) return 0;
    if (oldest == OldestLaunch::kUntold) return launch << 2 | kIsUntold;
    return launch << 2 | (is_at_launch ? kIsAtLaunch : static_cast<uint64_t>(oldest));
  }
  static constexpr OldestLaunch Of(uint64_t launch, uint64_t bits) {
    if (bits >> 2 != launch) return OldestLaunch::kUnknown;
    if ((bits & 3) == kIsUntold) return OldestLaunch::kUntold;
    return IsAtLaunch(launch, bits) ? OldestLaunch::kBegun : static_cast<OldestLaunch>(bits & 3);
  }
  static constexpr bool IsAtLaunch(uint64_t launch, uint64_t bits) {
    return bits == (launch << 2 | kIsAtLaunch);
  }
};

struct Heartbeat {
  uint64_t launches_completed = 0;
  uint64_t oldest_inflight_ns = 0;  // monotonic, 0: nothing is in flight
  OldestLaunch oldest_launch = OldestLaunch::kUnknown;
  bool is_at_oldest = false;  // with kBegun: that launch is known to be incomplete
};

template <typename Atomics>
class BasicHeartbeatCells {
 public:
  void Store(const Heartbeat& heartbeat) {
    oldest_inflight_ns_.store(heartbeat.oldest_inflight_ns);
    oldest_launch_.store(OldestLaunchBits::Pack(heartbeat.launches_completed + 1,
                                                heartbeat.oldest_launch, heartbeat.is_at_oldest));
    launches_completed_.publish(heartbeat.launches_completed);
  }
  // Stores the enqueue time of the oldest operation in flight, for communicators whose launches
  // have no CUDA events behind them.
  void StoreOldest(uint64_t enqueue_ns) { oldest_inflight_ns_.store(enqueue_ns); }

  Heartbeat Read() const {
    Heartbeat read;
    read.launches_completed = launches_completed_.acquire();
    read.oldest_inflight_ns = oldest_inflight_ns_.load();
    const uint64_t oldest = oldest_launch_.load();
    read.oldest_launch = OldestLaunchBits::Of(read.launches_completed + 1, oldest);
    read.is_at_oldest = OldestLaunchBits::IsAtLaunch(read.launches_completed + 1, oldest);
    return read;
  }
  // Caller holds all lanes of the record.
  void Reset() { Store({}); }

 private:
  Ordered<uint64_t, Atomics> launches_completed_;
  Relaxed<uint64_t, Atomics> oldest_inflight_ns_;  // launch or enqueue time, monotonic
  Relaxed<uint64_t, Atomics> oldest_launch_;       // OldestLaunchBits
};

using HeartbeatCells = BasicHeartbeatCells<StdAtomics>;

}  // namespace nccl_pulse

#endif  // METRICS_HEARTBEAT_H_
