// A doubt that is worth saying: of a pipeline whose stages fill their hosts, the host that waits
// least for the others. It is slow, or its stages have more to do; where no other host has ranks of
// these stages, and nothing is known of the time before, nothing tells which. So nobody is named.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_BUSIEST_HOST_H_
#define EXPORTER_DIAGNOSIS_BUSIEST_HOST_H_

#include <string>
#include <vector>

#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

// A sentence; "" where no host waits clearly less than all others.
std::string DoubtOfBusiestHost(const std::vector<CommunicatorView>& views);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_BUSIEST_HOST_H_
