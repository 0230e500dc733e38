// Peer is one process connected to this server, or a free slot.
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_PEERS_PEER_H_
#define EXPORTER_NODE_PEERS_PEER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "exporter/node/handover.h"
#include "exporter/node/peers/peer_segment.h"
#include "exporter/node/run_state.h"
#include "metrics/shared_descriptor.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct Peer {
  using Time = std::chrono::steady_clock::time_point;
  enum class State { kFree, kSilent, kMember };  // kSilent: connected, has not said hello yet

  State state = State::kFree;
  SharedDescriptor connection;
  SharedDescriptor received;  // descriptor that was passed with the current message
  PeerSegment segment;
  Credentials credentials;
  ProcessId process;
  Time since{};                   // when it connected
  uint64_t order = 0;             // order of joining, from 1; members only
  uint64_t page_bytes = 0;        // price of its measurements on a page (page_share.h)
  uint64_t finalized_bytes = 0;   // part of it for histograms of finalized communicators
  bool leaves_finalized = false;  // these histograms are left out, and not in page_bytes
  bool said_goodbye = false;
  bool claims_foreign = false;  // some of its communicators, which another user owns, are left out

  bool IsMemberOf(uid_t user) const { return state == State::kMember && credentials.user == user; }
  // True if the job that this server runs in has closed the peer's descriptors.
  bool IsLost() const { return connection.is_lost() || segment.IsLost(); }
  // Frees the slot.
  void Reset() {
    segment.Close();
    received.Close();
    connection.Close();
    state = State::kFree;
    said_goodbye = claims_foreign = leaves_finalized = false;
    page_bytes = finalized_bytes = 0;
    credentials = Credentials();
    process = ProcessId();
  }
};

// One process on a page of metrics, with its user.
struct PageEntry {
  ProcessSnapshot process;
  uid_t user;
  uint64_t order;  // order of joining, from 1
  bool is_itself;  // the kernel confirms the pid that the segment contains
  bool is_ended;   // ended, and read by the diagnosis only
  Peer* peer;      // its connection; null: the process ended
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_PEER_H_
