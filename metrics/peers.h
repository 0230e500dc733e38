// PeersOf derives the peers of a communicator's work in flight from its last calls.
//
// Thread: any, no state. Cost: some microseconds for 256 calls.
#ifndef METRICS_PEERS_H_
#define METRICS_PEERS_H_

#include <cstdint>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// `calls`: the rank's calls, oldest first. All peers are known if the launches in flight carry only
// Send and Recv and each call's peer is known. A Send and Recv of a rank to itself may be absent:
// NCCL does not report them if they are in place.
PeersSnapshot PeersOf(const std::vector<LastCallSnapshot>& calls,
                      const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // METRICS_PEERS_H_
