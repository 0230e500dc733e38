// What the timed calls of a communicator took, of each operation, size class and way of timing: in so
// few numbers that they can travel, from the histograms that cannot.
//
// A call counts for no more than the longest of the shorter 98 % do: one wait of minutes for a
// checkpoint is none of all the other calls' business, and in a mean it would be most of it.
//
// Only operations that ranks are compared by: all wait for the last one. Thread: any, no state.
// Cost: proportional to the histograms.
#ifndef EXPORTER_DIAGNOSIS_USUAL_DURATIONS_H_
#define EXPORTER_DIAGNOSIS_USUAL_DURATIONS_H_

#include <cstddef>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Of a communicator. There are four operations, some sizes and two ways of timing.
inline constexpr std::size_t kMostUsualDurations = 256;

// In the order of kind, operation and size class. What came from another process is returned as it
// is. Launches of several calls have size class -1: their parts differ.
std::vector<UsualDurationSnapshot> UsualDurationsOf(const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_USUAL_DURATIONS_H_
