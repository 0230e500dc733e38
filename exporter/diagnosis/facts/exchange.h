// Who is waited for among ranks that exchange data with each other by Send and Recv, as all-to-all
// does it.
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

// Whether each launch of each rank, collectives aside, carries one whole exchange: a Send to and a
// Recv from every other rank, itself included or not. Then the n-th launch is the same exchange on
// all of them, and no rank leaves it before the last one has come. Any rank that ever made more
// launches, or fewer calls, of an exchange has counts that do not fit for good.
bool AreLaunchesExchanges(const CommunicatorView& view);

// This says what share of their time processes spend in Send and Recv, waiting for the other side
// included. In a pipeline, ranks that wait for a slow one spend more there than before, and the
// slow one spends less. It is computed from the timed calls, of which each rank has a sample of its
// own.

// This says what share of its time one rank spends in calls on one communicator; nothing where too
// few were timed to tell.
std::optional<double> ShareInCalls(const RankView& rank,
                                   bool (*is_counted)(const TimedCallSnapshot& call));

class PointToPointWaits {
 public:
  // Exchanges of all ranks are left out: those are compared like collectives.
  explicit PointToPointWaits(const std::vector<CommunicatorView>& views);

  // Says whether it uses Send and Recv.
  bool HasPeers(const ProcessSnapshot* process) const { return shares_.count(process) != 0; }
  // Seconds per second; nothing where too few were timed to tell.
  std::optional<double> Of(const ProcessSnapshot* process) const;
  // Of the communicator's other ranks; nothing where it is not known of half of them.
  std::optional<double> Median(const CommunicatorView& view,
                               const std::set<const ProcessSnapshot*>& without) const;

 private:
  std::unordered_map<const ProcessSnapshot*, std::optional<double>> shares_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_EXCHANGE_H_
