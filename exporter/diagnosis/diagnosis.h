// Finds which rank holds up which: compares the ranks of this node to find hangs and stragglers.
// docs/detection.md says what it can and cannot tell.
//
//   snapshots ──► by communicator ──► waits/       in flight for long without progress: for whom?
//                                └──► stragglers/  matched timed calls: who came last, what did it
//                                                  cost the others?
//
// Facts, never guesses: a rank is named only when what its own process has counted says so. Where
// work cannot be seen (CUDA graphs, no completions) the verdict is kUnknown and the text says why.
//
// State: what stragglers/straggler.h remembers of each communicator, and when its counts of calls moved; it
// goes with the communicator. It begins anew with another server, and so do the counters (a reset,
// to Prometheus).
//
// Thread: the server's. Cost: per page, proportional to the ranks and their last timed calls; less
// than reading the snapshots does (bench/scrape.cc).
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

  // `hang_after`: the threshold of jobs whose processes say none (ProcessSnapshot::hang_after_ns).
  explicit Diagnosis(std::chrono::milliseconds hang_after = kDefaultHangAfter)
      : hang_after_(hang_after) {}

  // Uses one threshold for all jobs, whatever their processes say.
  void OverrideHangAfter(std::chrono::milliseconds hang_after) {
    hang_after_ = hang_after;
    is_overridden_ = true;
  }

  // The communicators of `snapshots`, by their ids. Call it for each set that is read: a timed call
  // counts once, whoever asks and how often.
  DiagnosisResult Update(const SnapshotSet& snapshots, int64_t now_realtime_ns);

 private:
  // The key is a communicator's id and number.
  using StragglerStates = std::map<std::pair<uint64_t, uint32_t>, StragglerState>;

  std::chrono::milliseconds hang_after_;
  bool is_overridden_ = false;
  StragglerStates stragglers_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_DIAGNOSIS_H_
