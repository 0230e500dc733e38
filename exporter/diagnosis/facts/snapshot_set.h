// What one page is made from: the snapshots of a node's processes. `pulse diagnose` lays those of
// many nodes together (exporter/fleet/snapshot_union.h).
//
// Thread: plain data.
#ifndef EXPORTER_DIAGNOSIS_FACTS_SNAPSHOT_SET_H_
#define EXPORTER_DIAGNOSIS_FACTS_SNAPSHOT_SET_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/facts/rejection.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

struct SnapshotSet {
  SnapshotSet() = default;
  // Implicit: a source that rejects nothing may return the snapshots alone.
  SnapshotSet(std::vector<ProcessSnapshot> processes)  // NOLINT(google-explicit-constructor)
      : processes(std::move(processes)) {}

  std::vector<ProcessSnapshot> processes;
  // Processes that ended and are not on the page: what the diagnosis needs of them, without
  // latencies.
  std::vector<ProcessSnapshot> ended;
  // Of the process that serves, "name=value,name=value": for what the endpoint says of itself. A
  // process' series have its own.
  std::string server_labels;
  RejectionCounts rejected{};  // since the server started
  // Not of one node: whoever asked all endpoints of a job expects all ranks of its communicators.
  bool is_of_all_nodes = false;
  // Of everything that is said of them: see rank_activity.h.
  int64_t stands_after_ns = kStoppedAfterNs;
};

// Thresholds for a hang (ProcessSnapshot::hang_after_ns). No endpoint goes by less than a second.
inline constexpr int64_t kDefaultHangAfterNs = 10000000000;
inline constexpr int64_t kLeastHangAfterNs = 1000000000;

// 0: not known.
inline int64_t ShorterThreshold(int64_t a_ns, int64_t b_ns) {
  return a_ns == 0 || b_ns == 0 ? std::max(a_ns, b_ns) : std::min(a_ns, b_ns);
}

// A process that has stopped must be known to by the time at which a hang is reported.
inline int64_t StandsAfterNs(const SnapshotSet& set) {
  int64_t stands_after_ns = kStoppedAfterNs;
  for (const ProcessSnapshot& process : set.processes) {
    if (process.hang_after_ns == 0) continue;
    stands_after_ns = std::min(stands_after_ns, std::max(process.hang_after_ns, kLeastHangAfterNs));
  }
  return stands_after_ns;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_SNAPSHOT_SET_H_
