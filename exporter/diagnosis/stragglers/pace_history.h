// PaceHistory remembers the pace of each process, its time per collective, to detect that a process
// has become slower. So a pipeline stage that became slower is distinguished from a stage that
// always had more work (slowed.h).
//
// Time is divided into windows. A window ends with the first page for which three things hold: it
// has lasted 10 s, has kMinTimed timed calls, and has kMinRounds rounds (calls of the rarest
// collective) or has lasted five minutes. Old neighbors are merged: kMostWindows cover a day.
//
//   ├──┼────┼──┤ ...  ├──┼──┼──┤
//   before            now: the last kPaceWindows; each must be slower: no pause is as long
//
// "Before" is the fastest earlier run of windows with about as many calls.
//
// The pace is computed from the calls by operation, and from the sums of stream durations scaled to
// all calls (one in 2^exponent is timed). Nothing is known of processes without stream timing, or
// with calls in CUDA graphs.
//
// Thread: the server's. Cost: per page, proportional to the operations of each communicator.
// Memory: kMostWindows windows and the last counts per process. After a change of the server it is
// empty.
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

// Returns milliseconds per collective; without collectives, per Send or Recv.
double PaceOf(const PaceWindow& window);

// The history of one process.
class ProcessPace {
 public:
  static constexpr std::size_t kPaceWindows = 3;
  static constexpr uint64_t kMinRounds = 8;
  static constexpr uint64_t kMinTimed = 24;  // least timed calls of a window
  static constexpr int64_t kMinWindowNs = 10'000'000'000;
  static constexpr int64_t kLongWindowNs = 300'000'000'000;
  static constexpr std::size_t kMostWindows = 24;
  static constexpr double kSlower = 1.03;  // factor from which a slower pace is reported

  // Adds the counts since the last update.
  void Update(const ProcessSnapshot& process, int64_t now_realtime_ns);
  // Returns ProcessSnapshot::pace: a window before the process slowed down and one since, or none.
  std::vector<PaceWindow> BeforeAndNow() const;

 private:
  // The calls of one operation and size class of a communicator.
  struct Kind {
    uint64_t calls = 0, timed = 0, timed_ns = 0;
    bool is_collective = false;
    bool is_of_groups = false;  // the communicator has launches of several calls
  };
  using Counts = std::unordered_map<uint64_t, Kind>;

  static Counts CountsOf(const ProcessSnapshot& process);
  void Close(const PaceWindow& window);
  // Returns the sum of windows_[first] to windows_[behind - 1], two or more.
  PaceWindow SumOf(std::size_t first, std::size_t behind) const;

  Counts counts_;  // at the beginning of the current window
  int64_t began_realtime_ns_ = 0;
  int exponent_ = -1;                // sampling exponent of the current window
  std::vector<PaceWindow> windows_;  // oldest first
};

class PaceHistory {
 public:
  // Adds the set's counts, and sets each process' `pace`. Drops processes that are not in the set.
  void Update(SnapshotSet* snapshots, int64_t now_realtime_ns);

 private:
  using Key = std::tuple<int32_t, uint32_t, int64_t>;  // pid, its namespace, start
  std::map<Key, ProcessPace> paces_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_PACE_HISTORY_H_
