// Health is the state of a node or a job as a whole, for headlines and exit statuses.
//
// OK means that every rank of each communicator in use is seen, and that its work is known to
// progress or to be complete. If any of this is not known, the state is kIncomplete, and the
// summary has the reason. A process that ended without finalizing counts as missing only if a rank
// may still wait for it, or if no communicator is in use and its own work was incomplete.
//
// Thread: plain data; any, no state.
#ifndef EXPORTER_DIAGNOSIS_HEALTH_H_
#define EXPORTER_DIAGNOSIS_HEALTH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

// In order of priority, but kWaiting precedes kIncomplete if only the activity of ranks is unknown.
enum class HealthStatus : uint8_t {
  kHang,        // a suspected hang, longer than this job's earlier waits
  kIncomplete,  // work that could hang is not seen
  kWaiting,     // a suspected hang, within this job's usual waits
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
  // lost_processes: ended processes that count as missing (see above).
  std::size_t lost_processes = 0, stopped_processes = 0, failed_gpus = 0;
  std::size_t ranks = 0, unknown_ranks = 0;  // of communicators in use, whose processes live
  std::size_t missing_ranks = 0;  // expected but never seen, in the communicator that lacks most
  uint64_t unmeasured_communicators = 0;  // beyond the processes' limits
  int64_t idle_since_realtime_ns = 0;     // if kIdle
  std::size_t communicators = 0;          // in use
  std::size_t blind_communicators = 0;    // in use, without any rank whose activity is known
  std::vector<std::string> notes;         // sentences about lost, stopped and unseen ranks
  // A sentence to follow the notes, including what is missing; "" with a hang, or with a straggler
  // if nothing is missing.
  std::string summary;
};

Health HealthOf(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                int64_t now_realtime_ns);
// As above. `views`: of these snapshots, at this time.
Health HealthOf(const SnapshotSet& snapshots, const std::vector<CommunicatorView>& views,
                const DiagnosisResult& diagnosis, int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HEALTH_H_
