// Settles an operation: counts what it came to, once. That happens when it is quiet, when its place
// is needed, or at finalize. Whoever took it out of its slot (OperationSlot) settles it.
//
// Nobody knows how many ProxyOps will come. So an operation with network traffic is over when all
// that started have stopped and nothing came for kQuietNs.
//
// Thread: the lane's holder; SettleIfIdle the background thread, SettleAll whoever finalizes. Cost:
// about 50 ns an operation.
#ifndef PLUGIN_TRACKER_SETTLING_H_
#define PLUGIN_TRACKER_SETTLING_H_

#include <cstdint>

#include "metrics/lane_writer.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/operation_slot.h"

namespace nccl_pulse {

// NCCL hands all of an operation's ProxyOps to the progress thread at once, so the silence between
// two is milliseconds.
inline constexpr uint64_t kQuietNs = 1000000000;

// The operation that stood at `place`.
[[gnu::noinline]] void Settle(Instruments& instruments, Communicator& communicator, uint32_t place,
                              const OperationState& state, LaneWriter& lane);
// Claims a place that is not known to be unused, and settles what stood there. False: it cannot be
// claimed. `claimed`: as OperationRing::ClaimUsed.
[[gnu::noinline]] bool ClaimUsedPlace(Instruments& instruments, Communicator& communicator,
                                      uint32_t place, LaneWriter& lane, uint64_t* claimed);
// All operations that have been quiet. True while some are open.
bool SettleIdle(Instruments& instruments, Communicator& communicator, uint64_t now_ns);
// Whatever is open. Waits for a lane, some milliseconds at most.
void SettleAll(Instruments& instruments, Communicator& communicator);

// What an operation's GPU times are worth, by its communicator's KernelChannels.
void CountKernelTime(Instruments& instruments, Communicator& communicator, uint32_t place,
                     const OperationState& state, uint64_t now_ns, LaneWriter& lane);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_SETTLING_H_
