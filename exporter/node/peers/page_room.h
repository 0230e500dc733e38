// Makes room on a full metrics page. Drops ended processes first, then the histograms of finalized
// communicators. If that is not enough, names a member for the caller to refuse. Always takes from
// the user whose measurements take most of the page (page_share.h).
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_PEERS_PAGE_ROOM_H_
#define EXPORTER_NODE_PEERS_PAGE_ROOM_H_

#include <sys/types.h>

#include "exporter/base/log.h"
#include "exporter/node/peers/kept_processes.h"
#include "exporter/node/peers/peer_options.h"
#include "exporter/node/peers/peer_slots.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

class PageRoom {
 public:
  // The pointers must outlive this object.
  PageRoom(const PeerOptions* options, PeerSlots* peers, KeptProcesses* kept, LogFunction log);

  // Stores in `peer` how many bytes of a page its snapshot, `process`, takes.
  static void Price(const ProcessSnapshot& process, Peer* peer);
  // Makes room without refusing a member, if that suffices. Returns null if the page fits;
  // otherwise the member to refuse. Refuse it and call again.
  Peer* Make();
  // Shows finalized communicators' histograms again once all of them fit, so that none flicker from
  // page to page.
  void ShowFinalizedAgain();

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
