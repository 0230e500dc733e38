// How much a timing consists of, the same for all sets, and the timing itself.
//
// Both calibrations are made by all sets in lock-step: each makes the same trials, the next trial
// follows from what those without a plugin took on average. A set that alone had made them would
// have used its streams and modules in another order than the others, and with compute beside that
// alone changes its times by up to a third.
//
// Thread: the coordinator's only one. Errors: of a set alone, they leave it out (sets.h).
#ifndef BENCH_COLLECTIVE_OVERHEAD_LOAD_H_
#define BENCH_COLLECTIVE_OVERHEAD_LOAD_H_

#include <cstdint>
#include <vector>

#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/rows.h"
#include "bench/collective_overhead/schedule.h"
#include "bench/collective_overhead/sets.h"

namespace nccl_pulse::overhead {

struct Load {
  uint32_t steps = 0;  // 0: not yet known
  uint32_t compute_kernels = 0;
};

class Timer {
 public:
  Timer(const Options& options, Sets* sets, Schedule* schedule)
      : options_(options), sets_(sets), schedule_(schedule) {}

  // In every round by all sets; what it finds the first time holds for all rounds.
  Error CalibrateCompute();
  // For a point that all sets are prepared for.
  Error CalibrateLoad(const Point& point, double sample_us, Load* load);

  Error Time(int member, const Point& point, const Load& load, uint32_t processor, Sample* sample);

  // Of a layer's kernel.
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
