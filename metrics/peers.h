// PeersOf finds the ranks with which a rank exchanges data in its Sends and Recvs in flight.
//
// Thread: any, no state. Cost: some microseconds for 256 calls.
#ifndef METRICS_PEERS_H_
#define METRICS_PEERS_H_

#include <cstdint>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Returns the peers of the launches in flight. `calls`: the rank's last calls, oldest first. All
// peers are known (are_known) if these launches carry only Send and Recv and each call's peer is
// known, except for one Send and Recv per group: NCCL reports none in place to the rank itself.
PeersSnapshot PeersOf(const std::vector<LastCallSnapshot>& calls,
                      const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // METRICS_PEERS_H_
