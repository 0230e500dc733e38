// The state of a node or a job as a whole, for headlines and exit statuses: the one rule for OK.
//
// OK is a claim: every rank of each communicator in use is seen, and its work is known to move or to be
// done. If anything is missing, the state is kIncomplete and the summary says what. A process that
// ended without finalizing is missed only if a rank still waits for it, or if nothing else is in use.
//
// Thread: plain data; any, no state.
#ifndef EXPORTER_DIAGNOSIS_HEALTH_H_
#define EXPORTER_DIAGNOSIS_HEALTH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

// The first that is true, in this order, is reported.
enum class HealthStatus : uint8_t {
  kHang,        // suspected, and longer than this job has waited before
  kIncomplete,  // something that could hang is not seen
  kWaiting,     // suspected, but as long as has been usual here
  kStraggler,
  kIdle,  // all ranks have been outside of NCCL for much longer than usual
  kOk,
  kUnused,  // no communicator is in use
};
constexpr const char* HealthStatusName(HealthStatus status) {
  constexpr const char* kNames[] = {"hang", "incomplete", "waiting", "straggler",
                                    "idle", "ok",         "unused"};
  return kNames[static_cast<std::size_t>(status)];
}

struct Health {
  HealthStatus status = HealthStatus::kUnused;
  // Lost: they ended, and live processes still have communicators with them.
  std::size_t lost_processes = 0, stopped_processes = 0, failed_gpus = 0;
  std::size_t ranks = 0, unknown_ranks = 0;  // of communicators in use, whose processes live
  std::size_t missing_ranks = 0;  // expected here and never seen, of the communicator with the most
  uint64_t unmeasured_communicators = 0;  // that processes had no room for
  int64_t idle_since_realtime_ns = 0;     // of kIdle
  std::size_t communicators = 0;          // in use
  std::size_t blind_communicators = 0;    // of them those on which no rank's activity is known
  std::vector<std::string> notes;         // sentences: what is lost, stopped, not seen
  // A sentence behind them, which also says what is missing; "" where hangs or stragglers are listed.
  std::string summary;
};

Health HealthOf(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HEALTH_H_
