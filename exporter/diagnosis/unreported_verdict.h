// The verdict where no launch is known to be in flight, but ranks stand in calls whose launches
// NCCL does not report.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_UNREPORTED_VERDICT_H_
#define EXPORTER_DIAGNOSIS_UNREPORTED_VERDICT_H_

#include "exporter/diagnosis/communicator_facts.h"
#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

// Empty when the ranks may simply have nothing to do.
Conclusion ConcludeUnreported(const CommunicatorFacts& facts);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_UNREPORTED_VERDICT_H_
