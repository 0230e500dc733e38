// Keeps the last snapshots of a server's members that ended.
//
// An agent keeps them within the limits of its options, and shows them on its metrics pages. Other
// servers remember up to kMaxEnded of them without histograms, so that the diagnosis can name an
// ended rank that others wait for. Beyond the limit, the user with most of them loses the oldest.
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_PEERS_KEPT_PROCESSES_H_
#define EXPORTER_NODE_PEERS_KEPT_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "exporter/base/log.h"
#include "exporter/exposition/page_share.h"
#include "exporter/node/peers/peer.h"
#include "exporter/node/peers/peer_options.h"
#include "exporter/node/user_log.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct KeptProcess {
  ProcessSnapshot process;
  Peer::Time until;  // when to forget it
  uid_t user;
  uint64_t order;       // order of joining, from 1
  uint64_t page_bytes;  // its price on a page (page_share.h)
  bool is_itself;       // the kernel confirms the pid that the segment contains
};

class KeptProcesses {
 public:
  // `options` must outlive this object.
  KeptProcesses(const PeerOptions* options, LogFunction log);

  // Keeps `process`, the last state of `peer`.
  void Keep(ProcessSnapshot process, const Peer& peer, bool is_itself, Peer::Time now);
  void ForgetOld(Peer::Time now);
  // Forgets the user's oldest process. Returns false if there is none.
  bool ForgetOldestOf(uid_t user);
  // Forgets a process that has reconnected.
  void ForgetSame(const ProcessSnapshot& process, uid_t user);
  // True if `process` claims to be an ended process of another user.
  bool IsAnothers(const ProcessSnapshot& process, uid_t user) const;

  // Adds the page_bytes of each user's processes.
  void AddShares(Shares* bytes_of) const;
  const std::deque<KeptProcess>& shown() const { return shown_; }
  // Returns the processes that only the diagnosis reads; empty if shown() is used.
  const std::deque<KeptProcess>& remembered() const { return remembered_; }

 private:
  static void Forget(std::deque<KeptProcess>* kept, std::size_t most, Peer::Time now);

  const PeerOptions& options_;
  UserLog log_;
  // Ordered by end, the earliest in front.
  std::deque<KeptProcess> shown_;
  std::deque<KeptProcess> remembered_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_KEPT_PROCESSES_H_
