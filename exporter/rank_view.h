// One communicator's ranks of this node side by side, for the diagnosis.
//
// Thread: plain data that points into a SnapshotSet.
#ifndef EXPORTER_RANK_VIEW_H_
#define EXPORTER_RANK_VIEW_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct RankView {
  enum class State { kLive, kFinalized, kGone };

  const ProcessSnapshot* process;
  const CommunicatorSnapshot* communicator;
  State state;

  int32_t rank() const { return communicator->rank; }
  // Since when something is in flight, 0: nothing that is known of.
  int64_t InFlightSince() const;
  // Of what is in flight.
  OldestLaunch oldest_launch() const {
    return InFlightSince() != 0 ? communicator->oldest_launch : OldestLaunch::kUnknown;
  }
  // Nothing is in flight, and that is known.
  bool IsIdle() const;
  uint64_t CallsOf(std::string_view op) const;
};

struct CommunicatorView {
  uint64_t comm_id;
  int32_t nranks, nnodes;
  std::vector<RankView> ranks;  // in order, each once
  // Its ranks exchange Send and Recv with each other, here or on another communicator.
  bool has_point_to_point = false;
  bool spans_pipeline = false;
};

// Between two times that a hostile segment may have made up.
inline int64_t ElapsedNs(int64_t now_ns, int64_t then_ns) {
  int64_t elapsed = 0;
  return __builtin_sub_overflow(now_ns, then_ns, &elapsed) ? 0 : elapsed;
}

// All ranks of the operation take part, and have called it equally often when all wait in it.
bool IsCollective(std::string_view op);
bool IsPointToPoint(std::string_view op);

// In the order of their ids. A communicator without an id (API v1 to v3 before its first operation)
// is left out.
std::vector<CommunicatorView> GroupByCommunicator(const SnapshotSet& snapshots);

}  // namespace nccl_pulse

#endif  // EXPORTER_RANK_VIEW_H_
