// The places that a server has for other processes. When they are taken, the user who has most of
// them gives way (page_share.h).
//
// Thread: the server's.
#ifndef EXPORTER_NODE_PEER_PLACES_H_
#define EXPORTER_NODE_PEER_PLACES_H_

#include <sys/types.h>

#include <vector>

#include "exporter/node/peer.h"

namespace nccl_pulse {

class PeerPlaces {
 public:
  explicit PeerPlaces(int max_members);

  std::vector<Peer>::iterator begin() { return peers_.begin(); }
  std::vector<Peer>::iterator end() { return peers_.end(); }
  std::vector<Peer>::const_iterator begin() const { return peers_.begin(); }
  std::vector<Peer>::const_iterator end() const { return peers_.end(); }

  // A free place, or that of the silent connection that has been here longest, of the user that has
  // most of them. There always is one: members never take the last kMaxSilent places.
  Peer* ForNewcomer();
  // All places of members are taken, and `newcomer` wants one: the newest member of the user who
  // gives way. Null when that is the newcomer's.
  Peer* MemberThatGivesWay(uid_t newcomer);

 private:
  std::vector<Peer> peers_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEER_PLACES_H_
