// PageEntry is one process on a page of metrics, with its user.
#ifndef EXPORTER_NODE_PEERS_PAGE_ENTRY_H_
#define EXPORTER_NODE_PEERS_PAGE_ENTRY_H_

#include <sys/types.h>

#include <cstdint>

#include "exporter/node/peers/peer.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct PageEntry {
  ProcessSnapshot process;
  uid_t user;
  uint64_t order;  // of joining
  bool is_itself;  // the kernel confirms the pid that the segment contains
  bool is_ended;   // for the diagnosis only
  Peer* peer;      // null: ended
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_PAGE_ENTRY_H_
