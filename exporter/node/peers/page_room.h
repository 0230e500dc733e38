// Makes room on a full metrics page: drops ended processes first, then the histograms of finalized
// communicators, then members. Always takes from the user whose measurements are largest
// (page_share.h).
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_PEERS_PAGE_ROOM_H_
#define EXPORTER_NODE_PEERS_PAGE_ROOM_H_

#include <sys/types.h>

#include "exporter/base/log_level.h"
#include "exporter/node/peers/kept_processes.h"
#include "exporter/node/peers/peer_options.h"
#include "exporter/node/peers/peer_slots.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

class PageRoom {
 public:
  // The pointers must outlive this object.
  PageRoom(const PeerOptions* options, PeerSlots* peers, KeptProcesses* kept, LogFunction log);

  // Sets the bytes of a page that the measurements of `peer`, in `process`, take.
  static void Price(const ProcessSnapshot& process, Peer* peer);
  // Makes room without refusing members, if possible. Returns the member to refuse next; null if
  // everything fits.
  Peer* Make();
  // Shows finalized communicators' histograms again once all of them fit, so that none flicker from
  // page to page.
  void TakeBackFinalized();

 private:
  bool LeaveOutFinalizedOf(uid_t user);

  const PeerOptions& options_;
  PeerSlots& peers_;
  KeptProcesses& kept_;
  const LogFunction log_;
  bool logged_finalized_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_PAGE_ROOM_H_
