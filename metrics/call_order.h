// CallOrderOf derives the order of a communicator's last collectives from its last calls.
//
// NCCL sorts the collectives of a group, so ranks may call them in any order. Groups are marked,
// and incomplete ones are left out. At the old end the ring has lost part of a group; at the new
// end a group without launch may get more calls.
//
// Thread: any, no state. Cost: some microseconds for 256 calls.
#ifndef METRICS_CALL_ORDER_H_
#define METRICS_CALL_ORDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Returns the order of `calls`, which are oldest first. Leaves out everything before a missing call
// or kind. `launches_completed`: null if not known (CommunicatorSnapshot::has_heartbeat).
CallOrderSnapshot CallOrderOf(const std::vector<LastCallSnapshot>& calls,
                              std::optional<uint64_t> launches_completed);

}  // namespace nccl_pulse

#endif  // METRICS_CALL_ORDER_H_
