// Makes room on a page that is full: what ended goes first, then the histograms of finalized
// communicators, then members. It is always the user whose measurements take most that gives way
// (page_share.h).
//
// Thread: the server's.
#ifndef EXPORTER_NODE_PAGE_ROOM_H_
#define EXPORTER_NODE_PAGE_ROOM_H_

#include <sys/types.h>

#include "exporter/base/log_level.h"
#include "exporter/node/kept_processes.h"
#include "exporter/node/peer_options.h"
#include "exporter/node/peer_places.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

class PageRoom {
 public:
  // All must outlive this object.
  PageRoom(const PeerOptions* options, PeerPlaces* peers, KeptProcesses* kept, LogFunction log);

  // Writes down how much of a page the peer's measurements take.
  static void Price(const ProcessSnapshot& process, Peer* peer);
  // Makes room without refusing anybody, as far as that goes. Returns the member that has to be
  // refused next; null when all fits.
  Peer* Make();
  // Shows finalized communicators' histograms again when all would fit: so nothing comes and goes
  // with every page.
  void TakeBackFinalized();

 private:
  bool LeaveOutFinalizedOf(uid_t user);

  const PeerOptions& options_;
  PeerPlaces& peers_;
  KeptProcesses& kept_;
  const LogFunction log_;
  bool logged_finalized_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PAGE_ROOM_H_
