// The plan: which group runs what, when, and what is done with the time that there is.
//
// Time is divided equally among the points. A fifth of it is kept back for those that are still
// undecided afterwards; each of them is measured once more, so that an interval is looked at twice
// at most (looking until it suits would make the confidence a lie).
#ifndef BENCH_COLLECTIVE_OVERHEAD_SESSION_H_
#define BENCH_COLLECTIVE_OVERHEAD_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/collective_overhead/group.h"
#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/report.h"
#include "bench/collective_overhead/schedule.h"

namespace nccl_pulse::overhead {

class Session {
 public:
  // `options` must outlive the session; `begin_seconds`: when the program began, by NowSeconds().
  Session(const Options& options, double begin_seconds);

  // Measures and writes; the exit status of the program.
  int Run();

 private:
  // What one timing of a point consists of; the same for all configurations.
  struct Load {
    uint32_t steps = 0;  // 0: not yet known
    uint32_t compute_kernels = 0;
  };

  // One start of all groups: measures all points, each until `pairs` (0: no limit) or its share of
  // the time until `end_seconds`. The error that leaves nothing to compare with, or nothing.
  Error RunRound(Launch launch, int round, int pairs, double end_seconds);
  // Brings up those groups; what does not come up is left out and noted in start_errors_.
  void StartGroups(Launch launch, const std::vector<int>& members);
  Error CalibrateCompute();
  Error CalibrateLoad(const Point& point, double sample_us, Load* load);
  // Adds blocks of `members`' samples until the deadline or `pairs`; at least as many as an
  // interval needs if `last_seconds` allows.
  void MeasurePoint(std::size_t index, int round, std::vector<int> members, int pairs,
                    double deadline_seconds, double last_seconds);
  Error Time(int configuration, const Point& point, const Load& load, uint32_t processor,
             Sample* sample);
  // After an error: a configuration gets new processes, if it did not need too many already.
  void Replace(int configuration, Launch launch, const Error& error, PointResult* result);
  std::vector<int> Alive() const;
  void CollectIdle();
  void Progress(std::size_t index) const;
  void WriteFiles() const;

  const Options& options_;
  const double begin_seconds_;
  const std::vector<Point> points_;
  Schedule schedule_;
  std::vector<std::unique_ptr<Group>> groups_;  // by configuration; null: not running
  std::vector<std::string> start_errors_;
  std::vector<int> replaced_;
  std::vector<PointResult> results_;  // all points of the first launch, then of the second
  std::vector<Load> loads_;           // of results_
  std::vector<IdleCost> idle_;
  uint32_t compute_rounds_ = 0;
  Machine machine_;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SESSION_H_
