// Makes the peers of what a communicator has in flight out of its last calls.
//
// Thread: any, no state. Cost: some microseconds for 256 calls.
#ifndef METRICS_PEERS_H_
#define METRICS_PEERS_H_

#include <cstdint>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// `calls`: of that communicator's rank, oldest first. All peers are known if the launches in flight
// carry Send and Recv alone and the peer of each call is known. A Send and a Recv of a rank to itself
// may be without one: NCCL does not report them if they are in place.
PeersSnapshot PeersOf(const std::vector<LastCallSnapshot>& calls,
                      const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // METRICS_PEERS_H_
