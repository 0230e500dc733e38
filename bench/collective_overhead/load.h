// Timer times operations under the same load in all sets. A set is the processes of one compared
// configuration: no plugin, or one of the plugins (sets.h).
//
// Calibration finds the number of steps and of compute kernels that fill a sample. All sets
// calibrate in lock-step: each runs the same trials, and the mean over the sets without a plugin
// decides the next trial. If only one set calibrated, it would use its streams and modules in
// another order; with compute kernels running, that alone changes its times by up to a third.
//
// Thread: the coordinator's only one. Errors: a set that fails is left out (sets.h).
#ifndef BENCH_COLLECTIVE_OVERHEAD_LOAD_H_
#define BENCH_COLLECTIVE_OVERHEAD_LOAD_H_

#include <cstdint>

#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/samples.h"
#include "bench/collective_overhead/schedule.h"
#include "bench/collective_overhead/sets.h"

namespace nccl_pulse::overhead {

// The work of one sample.
struct Load {
  uint32_t steps = 0;  // operations, or replays of the graph; 0: not known yet
  uint32_t compute_kernels = 0;
};

class Timer {
 public:
  Timer(const Options& options, Sets* sets, Schedule* schedule)
      : options_(options), sets_(sets), schedule_(schedule) {}

  // Measures the compute kernel. Call after each start of the sets, so that their processes have
  // the same history. Only the first call's result is used.
  Error CalibrateCompute();
  // Sets `load` so that a sample takes `sample_us`. All sets must be prepared for `point`.
  Error CalibrateLoad(const Point& point, double sample_us, Load* load);

  // Takes one sample of the set with index `member`. `processor`: number by which each rank
  // chooses a CPU near its GPU.
  Error Time(int member, const Point& point, const Load& load, uint32_t processor, Sample* sample);

  // Returns the loop count of the compute kernel that simulates a layer.
  uint32_t LayerRounds() const;

 private:
  const Options& options_;
  Sets* const sets_;
  Schedule* const schedule_;
  double round_us_ = 0;          // of one round of the compute kernel's loop
  uint32_t compute_rounds_ = 0;  // rounds of that loop per kernel, beside operations
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_LOAD_H_
