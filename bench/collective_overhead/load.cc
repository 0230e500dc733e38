#include "bench/collective_overhead/load.h"

#include <algorithm>
#include <cmath>

namespace nccl_pulse::overhead {
namespace {

constexpr int kComputeTrials = 4;
constexpr int kLoadTrials = 5;
constexpr uint32_t kMostSteps = 200000;
constexpr uint32_t kFewestSteps = 2;
// The compute kernels outlast the operations by this factor. So all operations run beside them, and
// a delay of the compute kernels shows in the total.
constexpr double kComputeExcess = 1.1;
constexpr double kComputeUs = 50;  // a kernel beside the operations
constexpr double kLayerUs = 15;    // a layer's kernel, in front of its operation

double LargestOf(const std::vector<Reply>& replies, double Reply::*field) {
  double largest = 0;
  for (const Reply& reply : replies) largest = std::max(largest, reply.*field);
  return largest;
}

uint32_t RoundsFor(double us, double round_us) {
  return static_cast<uint32_t>(std::clamp(us / round_us, 1.0, 1e9));
}

}  // namespace

Error Timer::CalibrateCompute() {
  Request request{};
  request.kind = RequestKind::kRun;
  request.compute_kernels = 20;
  request.compute_rounds = 10000;
  double round_us = 0;
  // The first timings only raise the clocks.
  for (int i = 0; i < kComputeTrials; ++i) {
    double sum_us = 0;
    int count = 0;
    Error last;
    for (const int member : schedule_->Shuffle(sets_->Alive())) {
      std::vector<Reply> replies;
      Error error = sets_->Call(member, request, &replies);
      if (!error.empty()) {
        last = error;
      } else if (IsWithoutPlugin(options_.configurations[static_cast<std::size_t>(member)])) {
        sum_us += LargestOf(replies, &Reply::total_us);
        ++count;
      }
    }
    if (count == 0) return last;
    round_us =
        sum_us / count / (static_cast<double>(request.compute_rounds) * request.compute_kernels);
    if (!(round_us > 0)) return "the compute kernel took no time";
    request.compute_rounds = RoundsFor(kComputeUs, round_us);
  }
  if (compute_rounds_ == 0) {
    round_us_ = round_us;
    compute_rounds_ = request.compute_rounds;
  }
  return {};
}

uint32_t Timer::LayerRounds() const { return round_us_ > 0 ? RoundsFor(kLayerUs, round_us_) : 1; }

Error Timer::Time(int member, const Point& point, const Load& load, uint32_t processor,
                  Sample* sample) {
  Request request{};
  request.kind = RequestKind::kRun;
  request.steps = load.steps;
  request.warmup_steps = std::max<uint32_t>(2, load.steps / 10);
  request.compute_kernels = load.compute_kernels;
  request.compute_rounds = compute_rounds_;
  request.processor = processor;
  std::vector<Reply> replies;
  Error error = sets_->Call(member, request, &replies);
  if (!error.empty()) return error;
  const double operations =
      static_cast<double>(load.steps) * OperationsPerStep(options_, point.mode);
  // The slowest rank counts: an operation ends when all ranks have their result.
  sample->operations_us = LargestOf(replies, &Reply::operations_us) / operations;
  sample->total_us = LargestOf(replies, &Reply::total_us) / operations;
  return {};
}

Error Timer::CalibrateLoad(const Point& point, double sample_us, Load* load) {
  Load trial;
  trial.steps = kFewestSteps;
  trial.compute_kernels = point.compute ? 1 : 0;
  const double operations_per_step = OperationsPerStep(options_, point.mode);
  double kernel_us = kComputeUs;
  for (int i = 0; i < kLoadTrials; ++i) {
    Sample mean = {0, 0};
    int count = 0;
    Error last;
    for (const int member : schedule_->Shuffle(sets_->Alive())) {
      Sample sample;
      Error error = Time(member, point, trial, 0, &sample);
      if (!error.empty()) {
        last = error;
      } else if (IsWithoutPlugin(options_.configurations[static_cast<std::size_t>(member)])) {
        mean.operations_us += sample.operations_us;
        mean.total_us += sample.total_us;
        ++count;
      }
    }
    if (count == 0) return last;
    mean.operations_us /= count;
    mean.total_us /= count;
    const double step_us = std::max(mean.operations_us * operations_per_step, 0.01);
    // If the compute kernels ended last, their length is known, as slowed down by the operations.
    if (point.compute && mean.total_us > 1.02 * mean.operations_us) {
      kernel_us = std::max(
          kernel_us, mean.total_us * operations_per_step * trial.steps / trial.compute_kernels);
    }
    // At most ten times more at once: the first, short timings are imprecise.
    const double wanted = std::min(sample_us / step_us, 10.0 * trial.steps);
    trial.steps =
        static_cast<uint32_t>(std::clamp(wanted, double{kFewestSteps}, double{kMostSteps}));
    if (point.compute) {
      trial.compute_kernels =
          static_cast<uint32_t>(std::ceil(kComputeExcess * trial.steps * step_us / kernel_us));
    }
  }
  *load = trial;
  return {};
}

}  // namespace nccl_pulse::overhead
