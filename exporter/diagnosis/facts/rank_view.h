// One communicator's ranks side by side: those of this node, or of all, for the diagnosis.
//
// Thread: plain data that points into a SnapshotSet.
#ifndef EXPORTER_DIAGNOSIS_FACTS_RANK_VIEW_H_
#define EXPORTER_DIAGNOSIS_FACTS_RANK_VIEW_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct RankView {
  enum class State { kLive, kFinalized, kGone };

  const ProcessSnapshot* process;
  const CommunicatorSnapshot* communicator;
  State state;

  RankActivity activity;
  // Of the communicators that its process has on its GPU, the one on which the driver answered first
  // with an error from which the context does not recover; null: on none.
  const CommunicatorSnapshot* failed = nullptr;
  // That may be the consequence of what happened to the GPU of a rank that it works with.
  bool is_failed_by_peer = false;
  bool is_stopped = false;        // its process is not running, or stands for another reason
  bool is_of_many_hosts = false;  // its host must be said, too
  // Number among the ranks that its process has in this communicator on one GPU, or on GPUs that are not
  // known: each is a thread of its own. Nearly always 0.
  uint32_t thread = 0;

  int32_t rank() const { return communicator->rank; }
  // 0: not known to be in flight.
  int64_t InFlightSince() const { return activity.is_in_flight() ? activity.since_realtime_ns : 0; }
  bool is_live_process() const { return process->end == ProcessEnd::kLive; }
  uint64_t CallsOf(std::string_view op) const;
};

using Ranks = std::vector<const RankView*>;

// `peers`: as PeersSnapshot has them, in order.
bool HasPeer(const std::vector<uint64_t>& peers, int64_t rank);

// They have captured as many CUDA graphs, of which as many are followed. Each rank numbers its own.
bool AreCapturedAlike(const Ranks& ranks);

struct CommunicatorView {
  uint64_t comm_id;
  uint32_t number = 0;    // among those with this id (same_ids.h)
  bool is_mixed = false;  // `ranks` are of several, and has some of them twice
  int32_t nranks, nnodes;
  std::vector<RankView> ranks;    // in order; each once if they are not mixed
  bool are_all_expected = false;  // who is not among them should be
  // Its ranks exchange Send and Recv with each other, here or on another communicator.
  bool has_point_to_point = false;
  // All of its ranks are seen, and send and receive alike, as an exchange of tokens between experts
  // does: of such a group of calls nobody can leave before the last one has come.
  bool is_exchange = false;
  // Two of its ranks exchange Send and Recv otherwise.
  bool spans_pipeline = false;
  // When a network step of any of its ranks ended last. Who waits in a collective waits for it, too;
  // of Send and Recv nothing follows from it.
  int64_t network_moved_realtime_ns = 0;

  // Null: it is not among them.
  const RankView* Find(int64_t rank) const;
};

// Its process is in exit(): no further call is to be expected.
inline bool IsExiting(const RankView& rank) { return rank.process->poller == PollerState::kEnded; }

// Its last call is a Send or Recv whose launch NCCL has not reported. NCCL reports every launch of those
// (docs/nccl-profiler-api.md#what-is-not-visible), so its host is inside NCCL, where it may connect to
// the peer, or it has not ended the group. A rank without others only calls itself.
bool IsInsideNccl(const RankView& rank);
// Unless NCCL is known not to have ended their group, such calls may also have failed, or been calls from
// a rank to itself, in place, which launch nothing.
inline bool MayHaveReturned(const RankView& rank) {
  return IsInsideNccl(rank) && !rank.communicator->are_unreported_in_group;
}

// True if two communicators of one process are on the same GPU, as far as that is known.
enum class SameGpu { kNo, kPerhaps, kYes };
SameGpu CompareGpus(const CommunicatorSnapshot& a, const CommunicatorSnapshot& b);

// All ranks of the operation take part, and have called it equally often when all wait in it.
bool IsCollective(std::string_view op);
// The name of a collective of which it is not known which it was, as dumps have them.
inline constexpr char kUnknownCollective[] = "Collective";
bool IsPointToPoint(std::string_view op);
// No rank can leave it before all have come. (A Broadcast's root can, and a Reduce's leaves.)
bool WaitsForAll(std::string_view op);
// A launch of several operations.
bool IsGrouped(std::string_view op);

// In the order of their ids and numbers. A communicator without an id (API v1 to v3 before its first operation)
// is left out.
std::vector<CommunicatorView> GroupByCommunicator(const SnapshotSet& snapshots,
                                                  int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_RANK_VIEW_H_
