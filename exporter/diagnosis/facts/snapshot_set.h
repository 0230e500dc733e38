// SnapshotSet holds the snapshots of a node's processes, from which the metrics page is rendered.
// `pulse diagnose` merges the sets of many nodes (exporter/fleet/snapshot_union.h).
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

// A sentence about a job without the plugin (exporter/outside).
struct OutsideNote {
  uint64_t comm_id = 0;  // a communicator of the job
  std::string text;
};

struct SnapshotSet {
  SnapshotSet() = default;
  // Implicit, for sources that only have snapshots.
  SnapshotSet(std::vector<ProcessSnapshot> processes)  // NOLINT(google-explicit-constructor)
      : processes(std::move(processes)) {}

  std::vector<ProcessSnapshot> processes;
  // Ended processes that are not on the page, for the diagnosis; without latencies.
  std::vector<ProcessSnapshot> ended;
  // Notes on jobs without the plugin whose GPUs wait; first the summary, if no root is found.
  std::vector<OutsideNote> outside_notes;
  // Labels of the serving process, "name=value,name=value", for the endpoint's own series. Other
  // series have their process' labels.
  std::string server_labels;
  RejectionCounts rejected{};  // since the server started
  // Live processes with the plugin that were rejected, so that their ranks are not in `processes`.
  uint64_t unread_processes = 0;
  // True if all endpoints of a job were asked, so that all ranks of its communicators are expected.
  bool is_of_all_nodes = false;
};

// Returns the shorter threshold. 0: not known.
inline int64_t ShorterThreshold(int64_t a_ns, int64_t b_ns) {
  return a_ns == 0 || b_ns == 0 ? std::max(a_ns, b_ns) : std::min(a_ns, b_ns);
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_SNAPSHOT_SET_H_
