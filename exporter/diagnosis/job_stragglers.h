// Which stragglers of a job's communicators are late themselves, and which only because they wait
// for another one: in a node whose tensor-parallel ranks wait for one of them, all come late to
// their other communicators. Processes that use Send and Recv are left out: of those it is not
// known who waits for whom.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_JOB_STRAGGLERS_H_
#define EXPORTER_DIAGNOSIS_JOB_STRAGGLERS_H_

#include <vector>

#include "exporter/diagnosis/job_verdict.h"
#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

// The largest first. Where each of a host's processes, of two or more, is late in itself, the host
// is one.
std::vector<JobStraggler> FindJobStragglers(const std::vector<CommunicatorView>& views,
                                            const DiagnosisResult& diagnosis);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_JOB_STRAGGLERS_H_
