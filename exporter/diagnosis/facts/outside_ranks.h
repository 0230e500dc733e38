// Joins ranks that run without the plugin (exporter/outside) with ranks that have it.
//
// A rank may be reported by its plugin, and by several agents. One report is kept: the plugin's,
// else that of its own node's agent.
//
// RAS, NCCL's status service, and the plugin count differently. RAS counts captured calls, but no
// call that has not launched. So a rank without the plugin gets the plugin's count of another rank,
// plus the difference between these ranks' counts by RAS.
//
// Thread: any, no state. Cost: none if all ranks have the plugin, else sorting the ranks.
#ifndef EXPORTER_DIAGNOSIS_FACTS_OUTSIDE_RANKS_H_
#define EXPORTER_DIAGNOSIS_FACTS_OUTSIDE_RANKS_H_

#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

void JoinOutsideRanks(SnapshotSet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_OUTSIDE_RANKS_H_
