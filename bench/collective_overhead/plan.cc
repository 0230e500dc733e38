#include "bench/collective_overhead/plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace nccl_pulse::overhead {
namespace {

// Time per point and set for buffers, a graph, or switching processes.
constexpr double kPrepareSeconds = 0.02;
// Factor of a sample's time: a tenth of the operations for warmup, and sending and waiting.
constexpr double kSampleOverhead = 1.15;
constexpr double kLargestStartShare = 1.0 / 3;
constexpr double kShortestSampleUs = 1000;
// Least length of a round, in start times, even if fewer than five rounds fit.
constexpr double kLeastStarts = 1.25;

}  // namespace

Plan MakePlan(const PlanInput& input, int rounds_asked) {
  Plan plan;
  plan.rounds = rounds_asked;
  if (rounds_asked == 0) {
    const double block_seconds = 2 * input.sets * input.sample_us * 1e-6 * kSampleOverhead;
    const double point_seconds = input.sets * kPrepareSeconds + kBlocksPerRound * block_seconds;
    const double wanted = std::max(input.start_seconds + input.points * point_seconds,
                                   input.start_seconds / kLargestStartShare);
    const double possible = input.seconds / (kLeastStarts * input.start_seconds);
    const double fewest = std::min<double>(kFewestRounds, possible);
    plan.rounds = static_cast<int>(
        std::clamp(std::max(input.seconds / wanted, fewest), 1.0, double{kMostRounds}));
  }
  plan.round_seconds = input.seconds / plan.rounds;
  plan.point_seconds =
      std::max(0.0, plan.round_seconds - input.start_seconds) / std::max(1, input.points);
  return plan;
}

double SampleUs(const PlanInput& input, const Plan& plan) {
  const double fitting_us = (plan.point_seconds - input.sets * kPrepareSeconds) * 1e6 /
                            (kBlocksPerRound * 2 * input.sets * kSampleOverhead);
  return std::max(kShortestSampleUs, std::min(input.sample_us, fitting_us));
}

double GuessStartSeconds(int sets, int ranks) { return 3 + 0.2 * sets * ranks; }

std::string PlanText(const PlanInput& input, const Plan& plan) {
  return absl::StrFormat(
      "%d rounds of %.1f s, %.1f s of them for starting; %d points, %.2f s for each in a round",
      plan.rounds, plan.round_seconds, input.start_seconds, input.points, plan.point_seconds);
}

}  // namespace nccl_pulse::overhead
