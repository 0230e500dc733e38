// ExcuseStragglers separates a job's slow ranks from ranks that are late only because they wait
// for a slow rank. If the tensor-parallel ranks of a node wait for one of them, they all arrive
// late at their other communicators. In a pipeline with a slow stage, all stages do.
//
// A late rank is excused if waits may explain half of its lateness:
//   - in a communicator with another straggler, unless this would excuse all late ranks; or
//   - in calls of other communicators, beyond the waits of the ranks with which it is compared
//     (ShareInCalls), or if these waits aren't known.
// All late stages of a pipeline but the latest are excused.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_JOB_STRAGGLERS_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_JOB_STRAGGLERS_H_

#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/job_verdict.h"

namespace nccl_pulse {

// Sets Straggler::excused. `diagnosis` has an entry for each view.
void ExcuseStragglers(const std::vector<CommunicatorView>& views, DiagnosisResult* diagnosis);

// Returns the stragglers that aren't excused, the largest first. If all processes of a host, two or
// more, are slow, the host is returned instead.
std::vector<JobStraggler> JobStragglersOf(const std::vector<CommunicatorView>& views,
                                          const DiagnosisResult& diagnosis);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_JOB_STRAGGLERS_H_
