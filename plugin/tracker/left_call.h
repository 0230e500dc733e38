// Counting the last call of a communicator, which its thread leaves for whoever holds a lane
// (uncounted_call.h).
//
// Thread: as said at each. Cost: 5 ns; with a lane's claim 20.
#ifndef PLUGIN_TRACKER_LEFT_CALL_H_
#define PLUGIN_TRACKER_LEFT_CALL_H_

#include "metrics/lane_writer.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/instruments.h"

namespace nccl_pulse {

// Counts it in this lane, if it is the one that may. Whoever holds the lane.
inline void CountUncounted(CommunicatorParts& parts, LaneWriter& writer) {
  if (__builtin_expect(!writer.holds(LaneRole::kLaunch), 0)) return;  // its holder will
  const UncountedCall::Call call = parts.launches.uncounted().Take();
  if (__builtin_expect(call.key == 0, 0)) return;
  AddToCell(writer.lane().callbacks[static_cast<int>(CallbackKind::kApi)], 1);
  writer.Count(call.key, 1, call.bytes);
}

// Any thread; a moment later it may be otherwise.
bool HasLeftCall(const Communicator& communicator);
// Background thread, finalize and init: counts it unless all lanes are busy.
void CountLeftCall(Instruments& instruments, const Communicator& communicator);
// Waits, a little, for a lane to count it in. Init and finalize.
void WaitForLeftCall(Instruments& instruments, const Communicator& communicator);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_LEFT_CALL_H_
