// Recognizes exchanges: groups of Send and Recv between all ranks, as in an all-to-all. Also
// measures the time that processes spend in Send and Recv.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_EXCHANGE_H_
#define EXPORTER_DIAGNOSIS_FACTS_EXCHANGE_H_

#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "exporter/diagnosis/facts/communicator_facts.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

// True if each launch of each rank, except collectives, is one whole exchange: a Send to and a Recv
// from every other rank, with or without itself. The n-th launch is then the same exchange on all
// ranks, and no rank leaves it before the last one has arrived. If a rank has ever split an
// exchange, or made only part of it, its counts no longer fit, and this stays false.
bool AreLaunchesExchanges(const CommunicatorView& view);

// PointToPointWaits computes the share of their time that processes spend in Send and Recv,
// including waits for the peer. In a pipeline, ranks that wait for a slow rank spend more time
// there than before, and the slow rank spends less. It uses the timed calls, of which each rank has
// its own sample.

// Returns the share of its time that a rank spends in calls on one communicator. Returns nothing if
// too few calls were timed.
std::optional<double> ShareInCalls(const RankView& rank,
                                   bool (*is_counted)(const TimedCallSnapshot& call));

class PointToPointWaits {
 public:
  // Leaves out exchanges of all ranks, which are compared like collectives.
  explicit PointToPointWaits(const std::vector<CommunicatorView>& views);

  // True if the process uses Send and Recv.
  bool HasPeers(const ProcessSnapshot* process) const { return shares_.count(process) != 0; }
  // Returns the process' share, in seconds per second. Returns nothing if too few calls were timed.
  std::optional<double> Of(const ProcessSnapshot* process) const;
  // Returns the median of the communicator's other ranks. Returns nothing if fewer than half are
  // known.
  std::optional<double> Median(const CommunicatorView& view,
                               const std::set<const ProcessSnapshot*>& without) const;

 private:
  std::unordered_map<const ProcessSnapshot*, std::optional<double>> shares_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_EXCHANGE_H_
