// Makes the order of a communicator's last collectives out of its last calls.
//
// Collectives of one group may be called in any order: NCCL sorts them. So groups are marked, and
// one of which only a part is here is left out: at the old end what the ring has lost the rest of,
// at the new end what has not been launched, because more may be called.
//
// Thread: any, no state. Cost: some microseconds for 256 calls.
#ifndef METRICS_CALL_ORDER_H_
#define METRICS_CALL_ORDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// `calls`: oldest first. Where calls or kinds are missing, what was called before is left out.
// `launches_completed`: null where nothing tells (CommunicatorSnapshot::has_heartbeat).
CallOrderSnapshot CallOrderOf(const std::vector<LastCallSnapshot>& calls,
                              std::optional<uint64_t> launches_completed);

}  // namespace nccl_pulse

#endif  // METRICS_CALL_ORDER_H_
