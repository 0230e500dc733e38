// FindOwed finds the calls that the suspects of a stall have not made: by operation and size, or by
// peer.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_OWED_H_
#define EXPORTER_DIAGNOSIS_WAITS_OWED_H_

#include "exporter/diagnosis/waits/stall.h"

namespace nccl_pulse {

// Sets `owed`, `before`, `peers`, `peer_op` and `is_exchange`. Sets `op` if the calls have
// only one operation.
void FindOwed(Stall* stall);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_OWED_H_
