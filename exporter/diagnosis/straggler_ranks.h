// The ranks of a communicator that are compared, how far they are apart, and their hosts.
//
// Thread: any, no state but the object's.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLER_RANKS_H_
#define EXPORTER_DIAGNOSIS_STRAGGLER_RANKS_H_

#include <cstddef>
#include <vector>

#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

// In the order of the view, into which they point.
std::vector<const RankView*> LiveRanks(const CommunicatorView& view);

double SumOfSquares(const std::vector<double>& numbers);

class HostsOfRanks {
 public:
  explicit HostsOfRanks(const std::vector<const RankView*>& ranks);

  std::size_t size() const { return ranks_.size(); }
  // Of the mean of each host's ranks.
  double SumOfSquares(const std::vector<double>& of_ranks) const;

 private:
  std::vector<std::size_t> host_;  // of each rank
  std::vector<double> ranks_;      // of each host, how many
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLER_RANKS_H_
