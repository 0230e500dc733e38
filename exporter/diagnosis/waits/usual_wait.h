// IsUsual compares a wait with an earlier wait on the same communicator, in the same operation and
// size, that ended with progress. So a checkpoint of ten minutes looks like a hang only the first
// time. An earlier wait that has not recurred for long does not count (metrics/long_wait.h).
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_USUAL_WAIT_H_
#define EXPORTER_DIAGNOSIS_WAITS_USUAL_WAIT_H_

#include <algorithm>
#include <cstdint>

#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

// A wait is usual up to this many times the longest earlier wait.
inline constexpr double kUsualFactor = 1.5;
// Shorter waits excuse no hang, and are not in the metrics.
inline constexpr uint64_t kLeastLongWaitNs = 5000000000;

// True if a wait of `waited_ns` is usual after an earlier one of `before_ns`.
inline bool IsUsual(int64_t waited_ns, uint64_t before_ns) {
  return before_ns >= kLeastLongWaitNs &&
         static_cast<double>(waited_ns) <= kUsualFactor * static_cast<double>(before_ns);
}

// Returns the rank's longest earlier wait in its last kind of call that still counts for a wait
// that began at `since_realtime_ns`; 0: none.
inline uint64_t LongestWaitBefore(const RankView& rank, int64_t since_realtime_ns) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  uint64_t longest_ns = 0;
  for (const LongestWaitSnapshot& wait : communicator.longest_waits) {
    if (!wait.op.empty() && wait.op == communicator.last_call_op &&
        wait.size_class == communicator.last_call_size_class &&
        since_realtime_ns <= wait.counts_until_realtime_ns) {
      longest_ns = std::max(longest_ns, wait.longest_ns);
    }
  }
  return longest_ns;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_USUAL_WAIT_H_
