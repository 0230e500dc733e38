// Makes /api/v1/communicators/ID/calls: the last calls of each rank of one communicator, oldest
// first. docs/http-api.md lists the fields.
//
// Thread: any, no state. Cost: about 1.5 us a call.
#ifndef EXPORTER_EXPOSITION_JSON_CALLS_JSON_H_
#define EXPORTER_EXPOSITION_JSON_CALLS_JSON_H_

#include <cstdint>
#include <string>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

// Returns "" if no process here has that communicator.
std::string CallsJson(const SnapshotSet& snapshots, uint64_t comm_id, int64_t now_realtime_ns,
                      const DiagnosisResult& diagnosis = {});

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_JSON_CALLS_JSON_H_
