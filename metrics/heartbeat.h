// What the background thread last saw of a communicator's launches, as readers get it.
//
// The writer publishes the number of completed launches last, and the reader reads it first. So a
// reader never finds work in flight without its age. It never finds more launches completed than
// made either: a launch is counted by its thread before the background thread can see it complete.
//
// Thread: Store: the background thread, with a lane of the record; Read: any.
// Explored by //tests/model:handover_test.
#ifndef METRICS_HEARTBEAT_H_
#define METRICS_HEARTBEAT_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

// Whether the GPU has begun the oldest launch in flight, and the number of that launch, so that the
// answer is never taken for one about another launch. 0: not known.
//
//   bit  63                       2 1            0
//        |  number of the launch  | OldestLaunch |
//                    62                  2
struct OldestLaunchBits {
  static constexpr uint64_t Pack(uint64_t launch, OldestLaunch oldest) {
    return oldest == OldestLaunch::kUnknown ? 0 : launch << 2 | static_cast<uint64_t>(oldest);
  }
  static constexpr OldestLaunch Of(uint64_t launch, uint64_t bits) {
    const bool is_of_it = bits >> 2 == launch && (bits & 3) <= 2;
    return is_of_it ? static_cast<OldestLaunch>(bits & 3) : OldestLaunch::kUnknown;
  }
};

struct Heartbeat {
  uint64_t launches_completed = 0;
  uint64_t oldest_inflight_ns = 0;  // monotonic, 0: nothing is in flight
  OldestLaunch oldest_launch = OldestLaunch::kUnknown;
};

template <typename Atomics>
class BasicHeartbeatCells {
 public:
  void Store(const Heartbeat& heartbeat) {
    oldest_inflight_ns_.store(heartbeat.oldest_inflight_ns);
    oldest_launch_.store(
        OldestLaunchBits::Pack(heartbeat.launches_completed + 1, heartbeat.oldest_launch));
    launches_completed_.publish(heartbeat.launches_completed);
  }
  // Where no events follow the launches: the enqueue of the oldest operation in flight alone.
  void StoreOldest(uint64_t enqueue_ns) { oldest_inflight_ns_.store(enqueue_ns); }

  Heartbeat Read() const {
    Heartbeat read;
    read.launches_completed = launches_completed_.acquire();
    read.oldest_inflight_ns = oldest_inflight_ns_.load();
    read.oldest_launch = OldestLaunchBits::Of(read.launches_completed + 1, oldest_launch_.load());
    return read;
  }
  // By who holds all lanes of the record.
  void Reset() { Store({}); }

 private:
  Ordered<uint64_t, Atomics> launches_completed_;
  Relaxed<uint64_t, Atomics> oldest_inflight_ns_;  // of a launch, or of an operation
  Relaxed<uint64_t, Atomics> oldest_launch_;       // OldestLaunchBits
};

using HeartbeatCells = BasicHeartbeatCells<StdAtomics>;

}  // namespace nccl_pulse

#endif  // METRICS_HEARTBEAT_H_
