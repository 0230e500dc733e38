// A doubt that is worth saying: of a pipeline whose stages fill their hosts, the host that waits
// least for the others. It is slow, or its stages have more to do; where no other host has ranks of
// these stages, and it is not known to have become slower (slowed.h), nothing tells which. So nobody
// is named. Nothing is said where a rank is not seen, or it is not known how long a process waits.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_BUSIEST_HOST_H_
#define EXPORTER_DIAGNOSIS_BUSIEST_HOST_H_

#include <string>

#include "exporter/diagnosis/job_processes.h"

namespace nccl_pulse {

// A sentence; "" where no host waits clearly less than all others.
std::string DoubtOfBusiestHost(const JobProcesses& job);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_BUSIEST_HOST_H_
