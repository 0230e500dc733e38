// Counts rejections by reason, and logs one warning per reason and minute.
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_PEERS_REJECTION_LOG_H_
#define EXPORTER_NODE_PEERS_REJECTION_LOG_H_

#include <array>
#include <chrono>
#include <string>

#include "exporter/base/log_level.h"
#include "exporter/diagnosis/facts/rejection.h"
#include "exporter/node/peers/peer.h"

namespace nccl_pulse {

inline constexpr std::chrono::minutes kRejectionLogPause{1};

class RejectionLog {
 public:
  explicit RejectionLog(LogFunction log);

  // `what`: what the peer did, to follow its name in a sentence.
  void Count(const Peer& peer, Rejection reason, const std::string& what);
  void CountSilently(Rejection reason);
  const RejectionCounts& counts() const { return counts_; }

 private:
  const LogFunction log_;
  RejectionCounts counts_{};
  RejectionCounts not_logged_{};
  std::array<Peer::Time, kRejections> silent_until_{};
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_REJECTION_LOG_H_
