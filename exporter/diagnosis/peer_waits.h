// Finds for whom ranks wait in Send and Recv, by the peers that NCCL reported.
//
// A rank in flight may wait for each peer that does not have the matching call in flight. One that
// has may be in an earlier call, so it proves nothing: it is said, and nobody is cleared by it.
//
// Thread: any, no state. Cost: of the peers of the ranks that wait.
#ifndef EXPORTER_DIAGNOSIS_PEER_WAITS_H_
#define EXPORTER_DIAGNOSIS_PEER_WAITS_H_

#include <vector>

#include "exporter/diagnosis/communicator_facts.h"

namespace nccl_pulse {

struct PeerWait {
  const RankView* rank;
  const RankView* peer;
  bool sends;      // else it receives
  bool is_mutual;  // the peer has the matching call in flight
};

struct PeerWaits {
  bool are_known = false;  // the peers of all ranks that wait
  std::vector<PeerWait> waits;
  // Peers that have nothing in flight, here or elsewhere on their GPU: they have not made the call.
  // A small Send ends by itself, so a peer may have made the call and have gone on. A peer is only
  // listed here if a rank waits for it alone, or if all other peers have work in flight; and not if
  // it has launched anything since the Recv that waits.
  Ranks awaited;
  // Each waits for the next, in this order. Nobody outside is waited for.
  std::vector<PeerWait> circle;
};

PeerWaits FollowPeers(const CommunicatorFacts& facts);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_PEER_WAITS_H_
