// This says where processes of a job were configured differently: in NCCL's version, and in
// variables such as NCCL_* (written by plugin/runtime/nccl_environment.h).
//
// Processes of one job are compared (jobs.h). A variable that has another value in each process
// is meant to differ, and not named. What a process has not reported, because it did not fit or its
// version does not, is unknown and not compared.
//
// Thread: any, no state. Cost: where all texts are equal, a comparison of each.
#ifndef EXPORTER_DIAGNOSIS_FACTS_ENVIRONMENT_DIFFERENCES_H_
#define EXPORTER_DIAGNOSIS_FACTS_ENVIRONMENT_DIFFERENCES_H_

#include <string>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

// Sentences; at most 8, and one that counts the rest.
std::vector<std::string> EnvironmentDifferences(const SnapshotSet& set);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_ENVIRONMENT_DIFFERENCES_H_
