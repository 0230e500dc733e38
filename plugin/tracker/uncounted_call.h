// The last call of a communicator, until a lane has counted it.
//
// A call is counted together with the operation that it becomes. So it costs its thread no lane
// before its kernel is launched. The calling thread leaves it here. Whoever holds the launch lane
// next takes it and counts it: the operation, or the background thread when none comes, or
// finalize. It is private to the process: if a reader counted it too, counters would step back.
//
//   key   0 nothing is here; else SeriesKey::Calls of the call
//
// Thread: Offer: the calling thread (NCCL serialises the calls of a communicator); Take: whoever
// holds the launch lane. Cost: about 5 ns.
// Explored by //tests/model:handover_test.
#ifndef PLUGIN_TRACKER_UNCOUNTED_CALL_H_
#define PLUGIN_TRACKER_UNCOUNTED_CALL_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

template <typename Atomics>
class BasicUncountedCall {
 public:
  struct Call {
    uint64_t key;  // 0: there is none
    uint64_t bytes;
  };

  // False: the one before is still here, count this one.
  bool Offer(uint64_t key, uint64_t bytes) {
    // Acquire: who took the call before this one has read its bytes.
    if (__builtin_expect(key_.acquire() != 0, 0)) return false;
    bytes_.store(bytes);
    key_.publish(key);  // sees the bytes
    return true;
  }

  // The lane's claim orders one taker after the other.
  Call Take() {
    const uint64_t key = key_.acquire();  // sees the bytes
    if (__builtin_expect(key == 0, 0)) return {0, 0};
    const uint64_t bytes = bytes_.load();
    key_.publish(0);  // the bytes have been read, the next call may leave its own
    return {key, bytes};
  }

  // A moment later it may be otherwise.
  bool is_there() const { return key_.load() != 0; }
  // While nobody calls, by init.
  void Reset() { key_.store(0); }

 private:
  Ordered<uint64_t, Atomics> key_;
  Relaxed<uint64_t, Atomics> bytes_;
};

using UncountedCall = BasicUncountedCall<StdAtomics>;

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_UNCOUNTED_CALL_H_
