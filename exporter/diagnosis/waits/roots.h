// The findings of the graph of waits as roots of a job: verdicts with the processes that are named.
//
// Thread: any, no state. Points into the views' snapshots.
#ifndef EXPORTER_DIAGNOSIS_WAITS_ROOTS_H_
#define EXPORTER_DIAGNOSIS_WAITS_ROOTS_H_

#include <cstdint>
#include <vector>

#include "exporter/diagnosis/job_verdict.h"
#include "exporter/diagnosis/waits/finding.h"

namespace nccl_pulse {

// In the order of jobs. `waits` and `found` are of `views`.
std::vector<JobRoot> RootsOf(const std::vector<CommunicatorView>& views, const Waits& waits,
                             const std::vector<JobFindings>& found);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_ROOTS_H_
