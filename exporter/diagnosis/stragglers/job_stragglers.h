// Tells which stragglers of a job are late themselves, and which only because they wait for another
// one. If the tensor-parallel ranks of a node wait for one of them, all of them come late to their
// other communicators; in a pipeline with a slow stage, all stages come late to theirs.
//
//   waits in a communicator whose straggler is another one      as long as it is late? excused
//   waits in Send and Recv (exchange.h), longer               as long as it is late? excused
//   than the ranks that it is compared with
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_JOB_STRAGGLERS_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_JOB_STRAGGLERS_H_

#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/job_verdict.h"

namespace nccl_pulse {

// The largest first. Where each of a host's processes, of two or more, is late in itself, the host
// is one.
std::vector<JobStraggler> FindJobStragglers(const std::vector<CommunicatorView>& views,
                                            const DiagnosisResult& diagnosis);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_JOB_STRAGGLERS_H_
