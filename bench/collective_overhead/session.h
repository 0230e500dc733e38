// Session schedules the whole measurement: the order and time of each set's runs. A set is the
// processes of one configuration (sets.h).
//
// Each round (plan.h) starts all processes anew and measures every point. Time is divided equally
// among rounds and among points. Nothing depends on what was measured: extending unfavorable
// measurements would falsify the intervals of overhead_report.py.
#ifndef BENCH_COLLECTIVE_OVERHEAD_SESSION_H_
#define BENCH_COLLECTIVE_OVERHEAD_SESSION_H_

#include <set>
#include <vector>

#include "bench/collective_overhead/load.h"
#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/plan.h"
#include "bench/collective_overhead/samples.h"
#include "bench/collective_overhead/schedule.h"
#include "bench/collective_overhead/sets.h"

namespace nccl_pulse::overhead {

class Session {
 public:
  // `options` must outlive the session; `begin_seconds`: the program's start, by NowSeconds().
  Session(const Options& options, double begin_seconds);

  // Measures all points and writes the samples. Returns the program's exit status.
  int Run();

 private:
  // Runs all rounds of a launch, until `end_seconds`. Returns an error only if no comparison is
  // possible.
  Error RunLaunch(std::size_t launch, double end_seconds);
  // Measures all points from index `first` on with the running sets. Each point gets `pairs` blocks
  // (0: no limit), or an equal share of the time until `share_end_seconds`.
  void MeasureRound(std::size_t first, int round, int pairs, double share_end_seconds,
                    double end_seconds);
  // Adds blocks (samples.h) of all sets until the deadline, or until there are `pairs`; at least
  // one unless `last_seconds` comes first.
  void MeasurePoint(std::size_t index, int round, int pairs, double deadline_seconds,
                    double last_seconds);
  void PreparePoint(std::size_t index);
  // Returns false if the block does not count: a set failed, or the round has to settle first.
  bool MeasureBlock(std::size_t index, int round);
  void NoteDropped(PointResult* result) const;

  void Progress(std::size_t index, int round) const;
  void Write() const;

  const Options& options_;
  const double begin_seconds_;
  const std::vector<Point> points_;
  Schedule schedule_;
  Sets sets_;
  Timer timer_;
  double sample_us_ = 0;                // length of a timing
  double settled_seconds_ = 0;          // blocks before this time do not count
  std::vector<PointResult> results_;    // all points of the first launch, then of the second
  std::vector<Load> loads_;             // per result
  std::vector<std::set<int>> checked_;  // per result: sets whose values were correct
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SESSION_H_
