// Makes /api/v1/communicators from snapshots: JSON for people and programs that want to know what a
// node's communicators do now.
//
// docs/http-api.md has the fields. Each rule behind them is in exporter/diagnosis.
//
// Thread: any, no state. Cost: about that of a /metrics page.
#ifndef EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_
#define EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_

#include <cstdint>
#include <string>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

std::string CommunicatorsJson(const SnapshotSet& snapshots, int64_t now_realtime_ns,
                              const DiagnosisResult& diagnosis = {});

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_
