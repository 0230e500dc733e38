// Numbers of ranks that are none: a launcher that starts one task on each node gives all processes
// of the node its own number (SLURM_PROCID), and says no other.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_SHARED_RANKS_H_
#define EXPORTER_DIAGNOSIS_SHARED_RANKS_H_

#include "exporter/diagnosis/snapshot_set.h"

namespace nccl_pulse {

// Clears the global rank of processes that have it in common and are different ranks of one
// communicator. Processes of two jobs may well have the same.
void ForgetSharedRanks(SnapshotSet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_SHARED_RANKS_H_
