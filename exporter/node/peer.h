// One process that is connected to this server, or a free place for one.
//
// Thread: the server's.
#ifndef EXPORTER_NODE_PEER_H_
#define EXPORTER_NODE_PEER_H_

#include <chrono>
#include <cstdint>

#include "exporter/node/handover.h"
#include "exporter/node/peer_segment.h"
#include "exporter/node/run_state.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

struct Peer {
  using Time = std::chrono::steady_clock::time_point;
  enum class State { kFree, kSilent, kMember };

  State state = State::kFree;
  SharedDescriptor connection;
  SharedDescriptor received;  // what came along with the message that is being looked at
  PeerSegment segment;
  Credentials credentials;
  ProcessId process;
  Time since{};
  uint64_t order = 0;  // of their coming, from 1 on; members
  uint64_t page_bytes = 0;
  uint64_t finalized_bytes = 0;   // of histograms of finalized communicators, at the last page
  bool leaves_finalized = false;  // these are left out, and not in page_bytes
  bool said_goodbye = false;
  bool claims_foreign = false;  // some of its communicators are left out

  bool IsMemberOf(uid_t user) const { return state == State::kMember && credentials.user == user; }
  // The job that this server is in has closed what is open of it.
  bool IsLost() const { return connection.is_lost() || segment.IsLost(); }
  // Frees the place.
  void Reset();
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEER_H_
