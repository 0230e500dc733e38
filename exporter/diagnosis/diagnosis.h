// Diagnosis compares the ranks of a node, or of a job, to find hangs and stragglers.
// docs/detection.md explains the rules and their limits.
//
//   snapshots ──► by communicator ──► waits/       stalled work: which rank does it wait for?
//                                └──► stragglers/  matched timed calls: which rank arrives last,
//                                                  and how long do the others wait?
//
// A rank is named only if facts point to it (facts/). If a deciding fact can't be observed (CUDA
// graphs, no completions), the verdict is kUnknown, and the text has the reason.
//
// State: a StragglerState per communicator, dropped with the communicator. If another process
// becomes the server, the state and its counters start at zero (for Prometheus, a counter reset).
//
// Thread: one at a time. Cost: per page, proportional to the ranks and their last timed calls; less
// than reading the snapshots (bench/scrape.cc).
#ifndef EXPORTER_DIAGNOSIS_DIAGNOSIS_H_
#define EXPORTER_DIAGNOSIS_DIAGNOSIS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/diagnosis/stragglers/straggler.h"
#include "exporter/diagnosis/waits/hang.h"

namespace nccl_pulse {

class Diagnosis {
 public:
  static constexpr std::chrono::milliseconds kDefaultHangAfter{kDefaultHangAfterNs / 1000000};

  // `hang_after`: threshold of jobs without their own (ProcessSnapshot::hang_after_ns).
  explicit Diagnosis(std::chrono::milliseconds hang_after = kDefaultHangAfter)
      : hang_after_(hang_after) {}

  // Uses this threshold for all jobs, even if they have their own.
  void OverrideHangAfter(std::chrono::milliseconds hang_after) {
    hang_after_ = hang_after;
    is_overridden_ = true;
  }

  // Returns a diagnosis per communicator of `snapshots`, ordered by ID. Call it for each set that
  // is read; a timed call counts once, however often it is read. `all_views`, if not null, gets the
  // views that were compared, for JudgeJob and HealthOf.
  DiagnosisResult Update(const SnapshotSet& snapshots, int64_t now_realtime_ns,
                         std::vector<CommunicatorView>* all_views = nullptr);

 private:
  // Key: a communicator's ID and number (same_ids.h).
  using StragglerStates = std::map<std::pair<uint64_t, uint32_t>, StragglerState>;

  std::chrono::milliseconds hang_after_;
  bool is_overridden_ = false;
  StragglerStates stragglers_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_DIAGNOSIS_H_
