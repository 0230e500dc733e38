// How many rounds there is time for.
//
// A round starts all processes anew, which takes seconds, and then measures every point. More
// rounds make narrower intervals (statistics.h), so there are as many as fit with three blocks for
// each point, as long as starting takes a third of the time at most. Points beyond what fits get
// shorter samples rather than fewer than five rounds.
//
// Thread: pure functions.
#ifndef BENCH_COLLECTIVE_OVERHEAD_PLAN_H_
#define BENCH_COLLECTIVE_OVERHEAD_PLAN_H_

#include <string>

namespace nccl_pulse::overhead {

inline constexpr int kFewestRounds = 5;
inline constexpr int kMostRounds = 30;
inline constexpr int kBlocksPerRound = 3;  // that a point's share of a round should hold

struct PlanInput {
  double seconds = 0;        // for all rounds of this launch
  double start_seconds = 0;  // what starting and ending all processes takes
  int points = 0;
  int sets = 0;  // of processes
  double sample_us = 0;
};

struct Plan {
  int rounds = 1;
  double round_seconds = 0;
  double point_seconds = 0;  // in each round
};

Plan MakePlan(const PlanInput& input, int rounds_asked);
// The length of a timing with which that many blocks fit into a point's share; at most the one
// asked for, at least a millisecond.
double SampleUs(const PlanInput& input, const Plan& plan);
// Before anything was started.
double GuessStartSeconds(int sets, int ranks);

// "8 rounds of 29.5 s, 4.0 s of them for starting; 54 points, 0.47 s for each in a round"
std::string PlanText(const PlanInput& input, const Plan& plan);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_PLAN_H_
