// Finds differences in the configuration of a job's processes: NCCL's version, and variables such
// as NCCL_* (written by plugin/runtime/nccl_environment.h).
//
// Only processes of the same job are compared (jobs.h). A variable with a different value in each
// of more than two processes is meant to differ, and is not reported. A variable that a process has
// not reported, for lack of room or because its plugin is older, is not compared.
//
// Thread: any, no state. Cost: if all texts are equal, one comparison per process.
#ifndef EXPORTER_DIAGNOSIS_FACTS_ENVIRONMENT_DIFFERENCES_H_
#define EXPORTER_DIAGNOSIS_FACTS_ENVIRONMENT_DIFFERENCES_H_

#include <string>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

// Returns at most 8 sentences, and one with the number of further differences.
std::vector<std::string> EnvironmentDifferences(const SnapshotSet& set);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_ENVIRONMENT_DIFFERENCES_H_
