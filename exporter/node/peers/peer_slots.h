// Holds a server's slots for other processes. When they are taken, the user with most slots gives
// way (page_share.h).
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_PEERS_PEER_SLOTS_H_
#define EXPORTER_NODE_PEERS_PEER_SLOTS_H_

#include <sys/types.h>

#include <vector>

#include "exporter/node/peers/peer.h"

namespace nccl_pulse {

class PeerSlots {
 public:
  explicit PeerSlots(int max_members);

  std::vector<Peer>::iterator begin() { return peers_.begin(); }
  std::vector<Peer>::iterator end() { return peers_.end(); }
  std::vector<Peer>::const_iterator begin() const { return peers_.begin(); }
  std::vector<Peer>::const_iterator end() const { return peers_.end(); }

  // Returns a free slot, or that of the oldest silent connection (no hello yet) of the user with
  // most of them. Never null: members never take the last kMaxSilent slots.
  Peer* ForNewcomer();
  // Call when all members' slots are taken. Returns the newest member of the user who gives way to
  // `newcomer`; null if that is the newcomer's own user.
  Peer* MemberThatGivesWay(uid_t newcomer);

 private:
  std::vector<Peer> peers_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_PEER_SLOTS_H_
