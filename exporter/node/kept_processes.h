// The last state of processes that ended.
//
// An agent keeps as many, for as long, as its options say, and shows them on its pages. Another
// server remembers kMaxEnded without their histograms, so that the diagnosis can say for whom the
// others wait. Where there are too many, the oldest of the user who has most is forgotten.
//
// Thread: the server's.
#ifndef EXPORTER_NODE_KEPT_PROCESSES_H_
#define EXPORTER_NODE_KEPT_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "exporter/base/log_level.h"
#include "exporter/exposition/page_share.h"
#include "exporter/node/peer.h"
#include "exporter/node/peer_options.h"
#include "exporter/node/user_log.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct KeptProcess {
  ProcessSnapshot process;
  Peer::Time until;
  uid_t user;
  uint64_t order;
  uint64_t page_bytes;
  bool is_itself;  // see Claim
};

class KeptProcesses {
 public:
  // `options` must outlive this object.
  KeptProcesses(const PeerOptions* options, LogFunction log);

  // `process` is what `peer` left behind.
  void Keep(ProcessSnapshot process, const Peer& peer, bool is_itself, Peer::Time now);
  void ForgetOld(Peer::Time now);
  // False when there is none of this user.
  bool ForgetOldestOf(uid_t user);
  // The same process is here again.
  void ForgetSame(const ProcessSnapshot& process, uid_t user);
  // Whether it says that it is a process that ended, and was another user's.
  bool IsAnothers(const ProcessSnapshot& process, uid_t user) const;

  void AddShares(Shares* bytes_of) const;
  const std::deque<KeptProcess>& shown() const { return shown_; }
  // For the diagnosis alone; there is none where some are shown.
  const std::deque<KeptProcess>& remembered() const { return remembered_; }

 private:
  static void Forget(std::deque<KeptProcess>* kept, std::size_t most, Peer::Time now);

  const PeerOptions& options_;
  UserLog log_;
  // The one that ended first in front.
  std::deque<KeptProcess> shown_;
  std::deque<KeptProcess> remembered_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_KEPT_PROCESSES_H_
