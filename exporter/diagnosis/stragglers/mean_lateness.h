// MeanLateness computes how much later each rank of a communicator arrives than the others, in the
// mean of all timed calls since the start. All ranks time the same calls, so their mean durations
// only differ by their waits for each other: the rank that waits least arrives last.
//
// If the last rank varies from step to step, the ranks' waits become equal in the mean: a healthy
// rank deviates by the deviation in one round, divided by the square root of the number of rounds.
// So in a job that has run for long, a single poll distinguishes a slow rank from a rank that
// happens to have the longest sequences at the moment.
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
  // For each rank, in nanoseconds per call: how much less it has waited than the mean of all ranks.
  // Empty if they cannot be compared.
  std::vector<double> of_rank;
  // Lateness in the calls of one kind (operation and size class), and `part`, their share of all
  // calls: a rank may be late only for the first call of each step.
  struct OfKind {
    double part = 0;
    std::vector<double> of_rank;
  };
  std::vector<OfKind> kinds;
  double rounds = 0;  // number of the job's rounds with these calls (rounds.h)
};

// `with_groups`: launches of several calls are exchanges of all ranks. `rounds`: the job's rounds
// so far.
MeanLateness MeanLatenessOf(const std::vector<const RankView*>& ranks, bool with_groups,
                            uint64_t rounds);

// UsualDurationsOf summarizes the durations of a communicator's timed calls, per operation, size
// class and way of timing. Unlike the histograms, the summaries are small enough to be sent to
// `pulse diagnose`.
//
// A call counts at most as much as the 98th percentile: otherwise one wait of minutes for a
// checkpoint would dominate the mean.
//
// Includes only launches of several calls, and operations in which all ranks wait for the last one.
//
// Thread: any, no state. Cost: proportional to the histograms.

// Limit per communicator: four operations, some sizes, and two ways of timing.
inline constexpr std::size_t kMostUsualDurations = 256;

// Returns the summaries by kind, operation and size class; those of a snapshot that already has
// some, because an endpoint sent it. Launches of several calls have size class -1, because their
// parts differ.
std::vector<UsualDurationSnapshot> UsualDurationsOf(const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_MEAN_LATENESS_H_
