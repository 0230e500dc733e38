// Settles operations: counts the result of each operation once. An operation is settled when it has
// been quiet for kQuietNs, when its slot is needed, or at finalize. The thread that closed it in
// its slot settles it (OperationSlot).
//
// The number of ProxyOps is not known in advance. So an operation with network traffic is over when
// all started ProxyOps have stopped and none came for kQuietNs.
//
// Thread: functions with a LaneWriter, the thread that holds the lane; SettleIdle the background
// thread, SettleAll the finalizing thread. Cost: about 50 ns an operation.
#ifndef PLUGIN_TRACKER_SETTLING_H_
#define PLUGIN_TRACKER_SETTLING_H_

#include <cstdint>

#include "metrics/lane_writer.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/operation_slot.h"

namespace nccl_pulse {

// NCCL passes all ProxyOps of an operation to the progress thread at once, so they start within
// milliseconds. A second without one means that no more will come.
inline constexpr uint64_t kQuietNs = 1000000000;

// Settles the operation that was at `place`.
[[gnu::noinline]] void Settle(Instruments& instruments, Communicator& communicator, uint32_t place,
                              const OperationState& state, LaneWriter& lane);
// Claims a place of the ring that may be in use, and settles its operation. Returns false if
// another thread is claiming the place. `claimed`: as in OperationRing::ClaimUsed.
[[gnu::noinline]] bool ClaimUsedSlot(Instruments& instruments, Communicator& communicator,
                                     uint32_t place, LaneWriter& lane, uint64_t* claimed);
// Settles all operations that have been quiet for kQuietNs. Returns true while operations are open.
bool SettleIdle(Instruments& instruments, Communicator& communicator, uint64_t now_ns);
// Settles all open operations. Waits for a lane, some milliseconds at most.
void SettleAll(Instruments& instruments, Communicator& communicator);

// Counts an operation's duration by its GPU times, or why it has none.
void CountKernelTime(Instruments& instruments, Communicator& communicator, uint32_t place,
                     const OperationState& state, uint64_t now_ns, LaneWriter& lane);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_SETTLING_H_
