// Tells whether this job has waited as long before, on the same communicator, in the same operation
// and size, and then continued. A checkpoint of ten minutes looks like a hang the first time, but
// not the second. One that has not come again for long is no measure (metrics/long_wait.h).
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_USUAL_WAIT_H_
#define EXPORTER_DIAGNOSIS_WAITS_USUAL_WAIT_H_

#include <cstdint>

#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

// A wait is usual up to this many times the longest that ended.
inline constexpr double kUsualFactor = 1.5;
// Shorter ones are no measure, and cost no series.
inline constexpr uint64_t kLeastLongWaitNs = 5000000000;

// A wait of that long is usual where one of `before_ns` has ended.
bool IsUsual(int64_t waited_ns, uint64_t before_ns);

// The longest wait of the rank in the kind of call that it made last, as a measure for a wait that began
// then; 0: none.
uint64_t LongestWaitBefore(const RankView& rank, int64_t since_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_USUAL_WAIT_H_
