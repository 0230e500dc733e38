// Makes /api/v1/communicators from snapshots: JSON on the current state of a node's communicators,
// for people and programs.
//
// docs/http-api.md lists the fields. The rules behind them are in exporter/diagnosis.
//
// Thread: any, no state. Cost: about that of a /metrics page.
#ifndef EXPORTER_EXPOSITION_JSON_COMMUNICATORS_JSON_H_
#define EXPORTER_EXPOSITION_JSON_COMMUNICATORS_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/snapshot.h"
#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

// A process of this host that uses NCCL without the plugin.
struct ProcessWithoutPlugin {
  int32_t pid = 0;                        // in the endpoint's PID namespace
  int64_t user = -1;                      // uid; -1: not known
  std::string global_rank, nccl_version;  // "": not known
  std::string stopped;                    // "stopped by a signal"; "": it runs
  std::vector<int> gpus;                  // NVML's indices
  int64_t start_realtime_ns = 0;
};
nlohmann::ordered_json WithoutPluginJson(const std::vector<ProcessWithoutPlugin>& processes);

// `without_plugin`: null if such processes are not searched for.
std::string CommunicatorsJson(const SnapshotSet& snapshots, int64_t now_realtime_ns,
                              const DiagnosisResult& diagnosis = {},
                              const std::vector<ProcessWithoutPlugin>* without_plugin = nullptr);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_JSON_COMMUNICATORS_JSON_H_
