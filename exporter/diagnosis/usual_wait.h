// Whether a wait is one that this job has shown before: on the same communicator, in the same
// operation, and it ended well. A checkpoint of ten minutes looks like a hang, but not the second
// time.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_USUAL_WAIT_H_
#define EXPORTER_DIAGNOSIS_USUAL_WAIT_H_

#include <cstdint>

#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

// A wait is usual up to this many times the longest that ended. The same factor stands in
// deploy/prometheus/recording.yaml.
inline constexpr double kUsualFactor = 1.5;
// Shorter ones are no measure, and cost no series.
inline constexpr uint64_t kLeastLongWaitNs = 5000000000;

void CompareWithPast(int64_t now_realtime_ns, HangFinding* finding);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_USUAL_WAIT_H_
