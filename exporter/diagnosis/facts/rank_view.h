// RankView and CommunicatorView present a communicator's ranks side by side, of one node or of all
// nodes, for the diagnosis.
//
// Thread: plain data that points into a SnapshotSet.
#ifndef EXPORTER_DIAGNOSIS_FACTS_RANK_VIEW_H_
#define EXPORTER_DIAGNOSIS_FACTS_RANK_VIEW_H_

#include <cstddef>
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
  // The communicator of this process and GPU on which the driver first reported an error from which
  // the context does not recover; null: none.
  const CommunicatorSnapshot* failed = nullptr;
  // True if the error may result from a fault of a peer's GPU.
  bool is_failed_by_peer = false;
  bool is_stopped = false;        // its process is stopped, or stalled for another reason
  bool is_of_many_hosts = false;  // sentences must also name its host
  // Number of the rank among the process' ranks in this communicator on the same GPU, or on unknown
  // GPUs. Each such rank has its own host thread. Nearly always 0.
  uint32_t thread = 0;

  int32_t rank() const { return communicator->rank; }
  // Returns since when work is in flight; 0: not known to be in flight.
  int64_t InFlightSince() const { return activity.is_in_flight() ? activity.since_realtime_ns : 0; }
  bool is_live_process() const { return process->end == ProcessEnd::kLive; }
  uint64_t CallsOf(std::string_view op) const;
};

using Ranks = std::vector<const RankView*>;

// Limit of searches for a rank or communicator to name in a sentence.
inline constexpr std::size_t kMostSearched = 64;

// Driver errors of several GPUs this close together may have one cause: they are noticed within a
// second, and clocks of hosts differ.
inline constexpr int64_t kSameErrorNs = 3000000000;

// `peers`: from PeersSnapshot, in order.
bool HasPeer(const std::vector<uint64_t>& peers, int64_t rank);

// True if all ranks have captured the same number of CUDA graphs, and follow the same number. Each
// rank numbers its own graphs.
bool AreCapturedAlike(const Ranks& ranks);

struct CommunicatorView {
  uint64_t comm_id;
  uint32_t number = 0;    // among communicators with this ID (same_ids.h)
  bool is_mixed = false;  // `ranks` belong to several communicators, some rank twice
  int32_t nranks, nnodes;
  std::vector<RankView> ranks;                  // in order; without duplicates unless mixed
  bool are_all_expected = false;                // all ranks should be reported here
  int64_t hang_after_ns = kDefaultHangAfterNs;  // threshold of its job (jobs.h)
  bool has_point_to_point = false;  // its ranks have called Send, Recv or one-sided operations
  // True if all nodes were polled and all ranks have made about the same number of Sends and Recvs,
  // as in an exchange of tokens between experts: no rank leaves such a group of calls before the
  // last one has arrived.
  bool is_exchange = false;
  // True if two of its processes share a communicator, this or another, with Sends and Recvs other
  // than exchanges.
  bool spans_pipeline = false;
  // Last network step of any rank, which is progress in a collective; 0 with `has_point_to_point`.
  int64_t network_moved_realtime_ns = 0;

  // Returns null if the rank is not in `ranks`.
  const RankView* Find(int64_t rank) const;
};

// True if ranks of a pipeline wait for each other in the view's Send and Recv. Exchanges of all
// ranks are compared like collectives.
inline bool IsOfPipeline(const CommunicatorView& view) {
  return view.has_point_to_point && !view.is_exchange;
}

// True if the rank's process is in exit(), so that the rank will make no further call.
inline bool IsExiting(const RankView& rank) { return rank.process->poller == PollerState::kEnded; }

// True if the process is stalled and runs: probably in a driver call, which may wait for work in
// flight.
inline bool IsInDriver(const RankView& rank) {
  const RunState state = rank.process->run_state;
  return rank.is_stopped && (state == RunState::kRunning || state == RunState::kUninterruptible);
}

// True if the rank's last call is a Send or Recv, on a communicator of several ranks. NCCL reports
// every launch of these (docs/nccl-profiler-api.md#what-is-not-visible).
bool IsLaunchAlwaysReported(const CommunicatorSnapshot& communicator);
// True if the rank's last call is such a Send or Recv, and its launch has not been reported. So the
// host is inside NCCL, for example connecting to the peer, or has not ended the group.
inline bool IsInsideSendOrRecv(const RankView& rank) {
  return rank.activity.reason == UnknownReason::kLaunchNotReported &&
         IsLaunchAlwaysReported(*rank.communicator);
}

// Whether two communicators of one process are on the same GPU.
enum class SameGpu { kNo, kPerhaps, kYes };
SameGpu CompareGpus(const CommunicatorSnapshot& a, const CommunicatorSnapshot& b);

// True if all ranks take part in the operation, so that all have equal counts when they wait in it.
bool IsCollective(std::string_view op);
// Name of a collective whose operation is not known, in dumps.
inline constexpr char kUnknownCollective[] = "Collective";
bool IsPointToPoint(std::string_view op);
// True if no rank can leave the operation before all have arrived. (A Broadcast's root can, and a
// Reduce's leaves.)
bool WaitsForAll(std::string_view op);
// True for a launch of several operations.
bool IsGrouped(std::string_view op);

// Returns a view per communicator, by ID and number. Omits communicators without an ID (API v1 to
// v3 before the first operation).
std::vector<CommunicatorView> GroupByCommunicator(const SnapshotSet& snapshots,
                                                  int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_RANK_VIEW_H_
