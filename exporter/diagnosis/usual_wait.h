// Tells whether this job has waited as long before, on the same communicator, in the same operation
// and size, and then continued. A checkpoint of ten minutes looks like a hang the first time, but
// not the second. One that has not come again for long is no measure (metrics/long_wait.h).
//
// A wait for ranks that wait elsewhere is as usual as the waits there: when these end, it does. Its
// own past may be another one. In a pipeline it depends on the moment of the pause which
// communicator a rank stands in, and which ranks have stood in it before.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_USUAL_WAIT_H_
#define EXPORTER_DIAGNOSIS_USUAL_WAIT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

// A wait is usual up to this many times the longest that ended.
inline constexpr double kUsualFactor = 1.5;
// Shorter ones are no measure, and cost no series.
inline constexpr uint64_t kLeastLongWaitNs = 5000000000;

void CompareWithPast(int64_t now_realtime_ns, HangFinding* finding);

// Behind the function above: marks what waits for usual waits alone. `findings`: one for each view.
void FollowUsualWaits(std::vector<std::optional<HangFinding>>* findings);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_USUAL_WAIT_H_
