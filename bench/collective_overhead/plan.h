// MakePlan computes the number of rounds that fit into the time.
//
// A round starts all processes anew, which takes seconds, and then measures every point. More
// rounds make narrower intervals (overhead_report.py). So MakePlan plans as many as fit with three
// blocks for each point (a block times each set twice, samples.h), while starting takes at most a
// third of the time. If fewer than five rounds fit, SampleUs shortens the samples instead.
//
// Thread: pure functions.
#ifndef BENCH_COLLECTIVE_OVERHEAD_PLAN_H_
#define BENCH_COLLECTIVE_OVERHEAD_PLAN_H_

#include <string>

namespace nccl_pulse::overhead {

inline constexpr int kFewestRounds = 5;
inline constexpr int kMostRounds = 30;
inline constexpr int kBlocksPerRound = 3;  // per point, at least

struct PlanInput {
  double seconds = 0;        // for all rounds of this launch
  double start_seconds = 0;  // to start and end all processes
  int points = 0;
  int sets = 0;          // of processes, one per configuration
  double sample_us = 0;  // requested length of a timing
};

struct Plan {
  int rounds = 1;
  double round_seconds = 0;
  double point_seconds = 0;  // in each round
};

// `rounds_asked`: --rounds; 0: as many as fit.
Plan MakePlan(const PlanInput& input, int rounds_asked);
// Returns the sample length that fits kBlocksPerRound blocks into a point's share; at most the
// requested one, at least a millisecond.
double SampleUs(const PlanInput& input, const Plan& plan);
// Returns an estimate of PlanInput::start_seconds, for use before the first start.
double GuessStartSeconds(int sets, int ranks);

// Returns "8 rounds of 29.5 s, 4.0 s of them for starting; 54 points, 0.47 s for each in a round"
std::string PlanText(const PlanInput& input, const Plan& plan);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_PLAN_H_
