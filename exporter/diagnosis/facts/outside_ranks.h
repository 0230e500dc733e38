// Joins ranks that run without the plugin (exporter/outside) with ranks that have it.
//
// Several agents may report a rank, with and without its plugin. Each rank is kept once: the plugin's
// report, else that of its own node's agent.
//
// RAS and the plugin count differently: RAS counts a captured call, and no call that has not been
// launched. So only differences between RAS' own counts are used, added to the plugin's counts.
//
// Thread: any, no state. Cost: none where all ranks have the plugin, else that of sorting the ranks.
#ifndef EXPORTER_DIAGNOSIS_FACTS_OUTSIDE_RANKS_H_
#define EXPORTER_DIAGNOSIS_FACTS_OUTSIDE_RANKS_H_

#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

void JoinOutsideRanks(SnapshotSet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_OUTSIDE_RANKS_H_
