// The plan: which set runs what, when, and what is done with the time that there is.
//
// Rounds over rounds (plan.h): each starts all processes afresh and measures every point. Time is
// divided equally among rounds and among points, and an interval is looked at once, at the end:
// measuring on where it does not suit would make the confidence a lie.
#ifndef BENCH_COLLECTIVE_OVERHEAD_SESSION_H_
#define BENCH_COLLECTIVE_OVERHEAD_SESSION_H_

#include <set>
#include <string>
#include <vector>

#include "bench/collective_overhead/load.h"
#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/plan.h"
#include "bench/collective_overhead/report.h"
#include "bench/collective_overhead/rows.h"
#include "bench/collective_overhead/schedule.h"
#include "bench/collective_overhead/sets.h"

namespace nccl_pulse::overhead {

class Session {
 public:
  // `options` must outlive the session; `begin_seconds`: when the program began, by NowSeconds().
  Session(const Options& options, double begin_seconds);

  // Measures and writes; the exit status of the program.
  int Run();

 private:
  // All rounds of a launch, until `end_seconds`. The error that leaves nothing to compare with, or
  // nothing.
  Error RunLaunch(std::size_t launch, double end_seconds);
  // With the sets that were started: all points from `first` on, each until `pairs` (0: no limit)
  // or its share of the time until `share_end_seconds`.
  void MeasureRound(std::size_t first, int round, int pairs, double share_end_seconds,
                    double end_seconds);
  // Adds blocks of all sets' samples until the deadline or `pairs`; one at least if `last_seconds`
  // allows.
  void MeasurePoint(std::size_t index, int round, int pairs, double deadline_seconds,
                    double last_seconds);
  void PreparePoint(std::size_t index);
  // False: a set failed, and half a block is none; or the round has to settle first.
  bool MeasureBlock(std::size_t index, int round);
  void NoteDropped(PointResult* result) const;

  void Progress(std::size_t index, int round) const;
  void WriteFiles() const;

  const Options& options_;
  const double begin_seconds_;
  const std::vector<Point> points_;
  Schedule schedule_;
  Sets sets_;
  Timer timer_;
  double sample_us_ = 0;                // length of a timing
  double settled_seconds_ = 0;          // nothing counts before that
  std::vector<PointResult> results_;    // all points of the first launch, then of the second
  std::vector<Load> loads_;             // of results_
  std::vector<std::set<int>> checked_;  // of results_: the sets whose values were right
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SESSION_H_
