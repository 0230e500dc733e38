// Counts rejections by reason, logs one warning per reason and minute, and follows the rejected
// processes whose measurements are missing until they end.
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_PEERS_REJECTION_LOG_H_
#define EXPORTER_NODE_PEERS_REJECTION_LOG_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/diagnosis/facts/rejection.h"
#include "exporter/node/peers/peer.h"
#include "exporter/node/run_state.h"

namespace nccl_pulse {

inline constexpr std::chrono::minutes kRejectionLogPause{1};

class RejectionLog {
 public:
  explicit RejectionLog(LogFunction log);

  // `what`: what the peer did, as the rest of the sentence that begins with its name.
  void Count(const Peer& peer, Rejection reason, const std::string& what);
  void CountSilently(Rejection reason);
  const RejectionCounts& counts() const { return counts_; }
  // Call when a rejected process was read after all.
  void Forget(pid_t pid);
  // Returns how many live processes are missing on the page because they were rejected
  // (LeavesUnread), kMostUnread at most. A process that is not visible here counts as live. Reads
  // /proc for each.
  uint64_t CountUnread();

 private:
  static constexpr std::size_t kMostUnread = 64;

  const LogFunction log_;
  std::vector<ProcessId> unread_;
  RejectionCounts counts_{};
  RejectionCounts not_logged_{};
  std::array<Peer::Time, kRejections> silent_until_{};
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_REJECTION_LOG_H_
