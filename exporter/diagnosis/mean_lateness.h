// By how much each rank of a communicator has come later than the others, in the mean of all calls
// that were ever timed (usual_durations.h). All ranks time the same calls, so their mean durations differ by what they
// waited for each other: who waits least comes last.
//
// Where it is one rank in one step and another in the next, what they waited becomes the same in the
// mean: a rank that is not slow is off by the deviation in one round, divided by the root of the
// number of rounds. So a single look at a job that has run for long tells a straggler from who has
// the longest sequences at the moment.
//
// Thread: any, no state. Cost: proportional to the histograms of the communicator's ranks.
#ifndef EXPORTER_DIAGNOSIS_MEAN_LATENESS_H_
#define EXPORTER_DIAGNOSIS_MEAN_LATENESS_H_

#include <cstdint>
#include <vector>

#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

struct MeanLateness {
  // Of each rank, in nanoseconds a call: how much less than the mean of all ranks it has waited.
  // Empty: they cannot be compared.
  std::vector<double> of_rank;
  double rounds = 0;  // of the job in which these calls were (rounds.h)
};

// `with_groups`: launches of several calls are exchanges with all ranks. `rounds`: of the job so far.
MeanLateness MeanLatenessOf(const std::vector<const RankView*>& ranks, bool with_groups,
                            uint64_t rounds);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_MEAN_LATENESS_H_
