// What share of their time processes spend in Send and Recv, waiting for the other side included. In
// a pipeline, ranks that wait for a slow one spend more there than before, and the slow one spends
// less. It is computed from the timed calls, of which each rank has a sample of its own.
//
// Thread: any; it points into the views.
#ifndef EXPORTER_DIAGNOSIS_POINT_TO_POINT_WAIT_H_
#define EXPORTER_DIAGNOSIS_POINT_TO_POINT_WAIT_H_

#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

// What share of its time one rank spends in calls on one communicator; nothing where too few were
// timed to tell.
std::optional<double> ShareInCalls(const RankView& rank,
                                   bool (*is_counted)(const TimedCallSnapshot& call));

class PointToPointWaits {
 public:
  // Exchanges of all ranks are left out: those are compared like collectives.
  explicit PointToPointWaits(const std::vector<CommunicatorView>& views);

  // Whether it uses Send and Recv.
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

#endif  // EXPORTER_DIAGNOSIS_POINT_TO_POINT_WAIT_H_
