// The state of a node as a whole, for headlines and exit statuses. First comes what is wrong, then
// what cannot be seen. Only when there is neither, nothing is suspected.
//
// Thread: plain data; any, no state.
#ifndef EXPORTER_DIAGNOSIS_HEALTH_H_
#define EXPORTER_DIAGNOSIS_HEALTH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/snapshot_set.h"

namespace nccl_pulse {

// The first that is true, in this order, is reported.
enum class HealthStatus : uint8_t {
  kHang,        // suspected, and longer than this job has waited before
  kIncomplete,  // a process was lost that others have communicators with, or is not running, a GPU's
                // driver answers with an error, or of most ranks of a communicator nothing is seen
  kWaiting,     // suspected, but as long as has been usual here
  kStraggler,
  kOk,
  kUnused,  // no communicator is in use
};
constexpr const char* HealthStatusName(HealthStatus status) {
  constexpr const char* kNames[] = {"hang", "incomplete", "waiting", "straggler", "ok", "unused"};
  return kNames[static_cast<std::size_t>(status)];
}

struct Health {
  HealthStatus status = HealthStatus::kUnused;
  // Lost: they ended, and live processes still have communicators with them.
  std::size_t lost_processes = 0, stopped_processes = 0, failed_gpus = 0;
  std::size_t ranks = 0, unknown_ranks = 0;  // of communicators in use, whose processes live
  std::size_t missing_ranks = 0;  // expected here and never seen, of the communicator with the most
  std::size_t communicators = 0;  // in use
  std::size_t blind_communicators = 0;  // of them those on which no rank's activity is known
  std::vector<std::string> notes;       // sentences: what is lost, stopped, not seen
  std::string summary;  // a sentence behind them; "" where hangs or stragglers are listed
};

Health HealthOf(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HEALTH_H_
