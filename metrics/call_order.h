// CallOrderOf derives the order of a communicator's last collectives from its last calls.
//
// NCCL sorts the collectives of a group, so ranks may call them in any order. The result marks
// calls of the same group. It leaves out incomplete groups: the oldest, if the ring of last calls
// has overwritten a part of it; and the newest, if it was not launched and may get more calls.
//
// Thread: any, no state. Cost: some microseconds for 256 calls.
#ifndef METRICS_CALL_ORDER_H_
#define METRICS_CALL_ORDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Returns the order of the collectives among `calls`, which are oldest first. Leaves out calls
// before a gap in their numbers, and before a call for which `kinds` has no room.
// `launches_completed`: number of completed launches of the communicator; nullopt if not known.
CallOrderSnapshot CallOrderOf(const std::vector<LastCallSnapshot>& calls,
                              std::optional<uint64_t> launches_completed);

}  // namespace nccl_pulse

#endif  // METRICS_CALL_ORDER_H_
