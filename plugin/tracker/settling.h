// Settles operations: counts the result of each operation once. An operation is settled when it has
// been quiet, when its slot is needed, or at finalize, by the thread that took it out of its slot
// (OperationSlot).
//
// The number of ProxyOps is not known in advance. So an operation with network traffic is over when
// all started ProxyOps have stopped and none came for kQuietNs.
//
// Thread: the lane's holder; SettleIdle the background thread, SettleAll the finalizing thread.
// Cost: about 50 ns an operation.
#ifndef PLUGIN_TRACKER_SETTLING_H_
#define PLUGIN_TRACKER_SETTLING_H_

#include <cstdint>

#include "metrics/lane_writer.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/operation_slot.h"

namespace nccl_pulse {

// NCCL passes all ProxyOps of an operation to the progress thread at once, so two of them are
// milliseconds apart.
inline constexpr uint64_t kQuietNs = 1000000000;

// Settles the operation that was at `place`.
[[gnu::noinline]] void Settle(Instruments& instruments, Communicator& communicator, uint32_t place,
                              const OperationState& state, LaneWriter& lane);
// Claims a place that may be in use, and settles its operation. Returns false if it cannot be
// claimed. `claimed`: as OperationRing::ClaimUsed.
[[gnu::noinline]] bool ClaimUsedSlot(Instruments& instruments, Communicator& communicator,
                                     uint32_t place, LaneWriter& lane, uint64_t* claimed);
// Settles all operations that have been quiet. Returns true while operations are open.
bool SettleIdle(Instruments& instruments, Communicator& communicator, uint64_t now_ns);
// Settles all open operations. Waits for a lane, some milliseconds at most.
void SettleAll(Instruments& instruments, Communicator& communicator);

// Counts an operation's GPU times, if the communicator's KernelChannels trusts them.
void CountKernelTime(Instruments& instruments, Communicator& communicator, uint32_t place,
                     const OperationState& state, uint64_t now_ns, LaneWriter& lane);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_SETTLING_H_
