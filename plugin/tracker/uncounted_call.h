// The last call of a communicator is counted by the operation that it becomes, so that it costs its
// thread no lane before its kernel is launched (FollowedLaunches, metrics/segment_layout.h).
//
// Thread: any that holds a lane. Cost: about 5 ns.
#ifndef PLUGIN_TRACKER_UNCOUNTED_CALL_H_
#define PLUGIN_TRACKER_UNCOUNTED_CALL_H_

#include "metrics/lane_writer.h"

namespace nccl_pulse {

// Counts the communicator's call that is counted in no lane yet, if this lane is the one that may.
inline void CountUncounted(CommunicatorRecord& record, LaneWriter& writer) {
  if (__builtin_expect(!writer.holds(LaneRole::kLaunch), 0))
    return;  // its holder, or the next one, will
  FollowedLaunches& followed = record.followed;
  // Acquire: sees the call's bytes.
  const uint64_t key = followed.uncounted_call.load(std::memory_order_acquire);
  if (__builtin_expect(key == 0, 0)) return;
  AddToCell(writer.lane().callbacks[static_cast<int>(CallbackKind::kApi)], 1);
  writer.Count(key, 1, followed.uncounted_bytes.load(std::memory_order_relaxed));
  // Release: the bytes have been read, the next call may write its own.
  followed.uncounted_call.store(0, std::memory_order_release);
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_UNCOUNTED_CALL_H_
