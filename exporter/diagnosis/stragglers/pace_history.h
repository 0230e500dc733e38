// Whether a process has become slower, and what it did with the time: what an endpoint remembers
// from page to page. It tells a stage of a pipeline that always had more to do from one that became
// slower while the others did not (slowed.h).
//
// Time is cut into windows, each of kMinRounds rounds of the job (as often as its rarest collective
// was called) and of 10 s, or of five minutes. A window ends with a page; of old ones neighbours
// are joined, so that a day fits into kMostWindows.
//
//   before          the last ones
//   ├──┼────┼──┤ ...  ├──┼──┼──┤ now
//   fastest run of    kPaceWindows, each of them slower: a pause does not last that long
//   as many rounds
//
// What it rests on: calls by operation, and the sums of the durations on the stream, scaled by the
// sampling exponent. Nothing is known of processes that are not timed on the stream, or have calls
// in CUDA graphs.
//
// Thread: the server's. Cost: per page, proportional to the operations of each communicator.
// Memory: kMostWindows windows and the last counts of each process. It begins anew with another
// server.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_PACE_HISTORY_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_PACE_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// Nanoseconds for each collective, or for each Send and Recv where there is none.
double PaceOf(const PaceWindow& window);
// True if a process did the same in both, by the mix of its calls.
bool AreAlike(const PaceWindow& a, const PaceWindow& b);

// It is the history of one process.
class ProcessPace {
 public:
  static constexpr uint64_t kMinRounds = 8;
  static constexpr uint64_t kMinTimed = 24;
  static constexpr int64_t kMinWindowNs = 10'000'000'000;
  static constexpr int64_t kLongWindowNs = 300'000'000'000;
  static constexpr std::size_t kMostWindows = 24;
  static constexpr double kSlower = 1.03;  // than before, to be told

  // Counts what is new since the last time.
  void Update(const ProcessSnapshot& process, int64_t now_realtime_ns);
  // Returns what ProcessSnapshot::pace holds.
  std::vector<PaceWindow> Told() const;

 private:
  // These are the calls of one operation and size class of a communicator.
  struct Kind {
    uint64_t calls = 0, timed = 0, timed_ns = 0;
    bool is_collective = false;
    bool is_of_groups = false;  // the communicator has launches of several calls
  };
  using Counts = std::unordered_map<uint64_t, Kind>;
  // windows_[first] to windows_[behind - 1].
  struct Run {
    std::size_t first = 0, behind = 0;
    PaceWindow sum;
  };

  static Counts CountsOf(const ProcessSnapshot& process);
  void Close(const PaceWindow& window);
  // Before windows_[last]; none: `behind` is 0.
  Run FastestBefore(std::size_t last, const PaceWindow& now) const;
  uint64_t ErrorOf(const Run& run) const;

  Counts counts_;  // when the window began
  int64_t began_realtime_ns_ = 0;
  int exponent_ = -1;
  std::vector<PaceWindow> windows_;  // oldest first
};

class PaceHistory {
 public:
  // Also fills in what is told of each process. Processes that are not in the set are forgotten.
  void Update(SnapshotSet* snapshots, int64_t now_realtime_ns);

 private:
  using Key = std::tuple<int32_t, uint32_t, int64_t>;  // pid, its namespace, start
  std::map<Key, ProcessPace> paces_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_PACE_HISTORY_H_
