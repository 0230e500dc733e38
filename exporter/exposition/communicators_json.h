// Makes /api/v1/communicators from snapshots: JSON on the current state of a node's communicators,
// for people and programs.
//
// docs/http-api.md lists the fields. The rules behind them are in exporter/diagnosis.
//
// Thread: any, no state. Cost: about that of a /metrics page.
#ifndef EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_
#define EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_

#include <cstdint>
#include <string>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

std::string CommunicatorsJson(const SnapshotSet& snapshots, int64_t now_realtime_ns,
                              const DiagnosisResult& diagnosis = {});

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_
