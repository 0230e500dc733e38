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
  uint64_t order;  // order of joining, from 1
  bool is_itself;  // the kernel confirms the pid that the segment contains
  bool is_ended;   // ended, and read by the diagnosis only
  Peer* peer;      // its connection; null: the process ended
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_PAGE_ENTRY_H_
