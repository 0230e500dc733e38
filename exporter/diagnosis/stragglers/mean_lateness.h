// By how much each rank of a communicator has come later than the others, in the mean of all calls
// that were ever timed. All ranks time the same calls, so their mean durations differ by what they
// waited for each other: who waits least comes last.
//
// Where it is one rank in one step and another in the next, what they waited becomes the same in
// the mean: a rank that is not slow is off by the deviation in one round, divided by the root of
// the number of rounds. So a single look at a job that has run for long tells a straggler from who
// has the longest sequences at the moment.
//
// Thread: any, no state. Cost: proportional to the histograms of the communicator's ranks.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_MEAN_LATENESS_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_MEAN_LATENESS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct MeanLateness {
  // Of each rank, in nanoseconds a call: how much less than the mean of all ranks it has waited.
  // Empty: they cannot be compared.
  std::vector<double> of_rank;
  double rounds = 0;  // of the job in which these calls were (rounds.h)
};

// `with_groups`: launches of several calls are exchanges with all ranks. `rounds`: of the job so
// far.
MeanLateness MeanLatenessOf(const std::vector<const RankView*>& ranks, bool with_groups,
                            uint64_t rounds);

// What the timed calls of a communicator took, of each operation, size class and way of timing: in
// so few numbers that they can travel, from the histograms that cannot.
//
// A call counts for no more than the longest of the shorter 98 % do: one wait of minutes for a
// checkpoint is none of all the other calls' business, and in a mean it would be most of it.
//
// Only operations that ranks are compared by: all wait for the last one. Thread: any, no state.
// Cost: proportional to the histograms.

// Of a communicator. There are four operations, some sizes and two ways of timing.
inline constexpr std::size_t kMostUsualDurations = 256;

// In the order of kind, operation and size class. What came from another process is returned as it
// is. Launches of several calls have size class -1: their parts differ.
std::vector<UsualDurationSnapshot> UsualDurationsOf(const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_MEAN_LATENESS_H_
