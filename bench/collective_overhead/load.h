// Timer times operations, with the same load for all sets.
//
// All sets calibrate in lock-step. Each runs the same trials, and the mean over the sets without a
// plugin decides the next trial. A set that calibrated alone would use its streams and modules in
// another order; if compute runs beside, that alone changes its times by up to a third.
//
// Thread: the coordinator's only one. Errors: a set that fails is left out (sets.h).
#ifndef BENCH_COLLECTIVE_OVERHEAD_LOAD_H_
#define BENCH_COLLECTIVE_OVERHEAD_LOAD_H_

#include <cstdint>
#include <vector>

#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/samples.h"
#include "bench/collective_overhead/schedule.h"
#include "bench/collective_overhead/sets.h"

namespace nccl_pulse::overhead {

struct Load {
  uint32_t steps = 0;  // 0: not known yet
  uint32_t compute_kernels = 0;
};

class Timer {
 public:
  Timer(const Options& options, Sets* sets, Schedule* schedule)
      : options_(options), sets_(sets), schedule_(schedule) {}

  // Runs in every round on all sets; the first result holds for all rounds.
  Error CalibrateCompute();
  // Runs for a point that all sets are prepared for.
  Error CalibrateLoad(const Point& point, double sample_us, Load* load);

  Error Time(int member, const Point& point, const Load& load, uint32_t processor, Sample* sample);

  // Returns the rounds of a layer's kernel.
  uint32_t LayerRounds() const;

 private:
  const Options& options_;
  Sets* const sets_;
  Schedule* const schedule_;
  double round_us_ = 0;
  uint32_t compute_rounds_ = 0;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_LOAD_H_
