// From paired samples to an estimate that holds for processes started anew.
//
// A set of processes has its own memory pages, connections and streams, and with them a speed of
// its own: two sets that do the same differ by up to 2 %. No number of samples from one start
// averages that out. So the unit is the round, one start of all sets in a random order:
//
//   pair     a block's time with the plugin beside the mean of the sets without (block: schedule.h)
//   round    the median of its pairs' differences, and of their ratios: an outlier moves nothing
//   stated   the mean of the rounds, with Student's interval over rounds (rounds - 1 degrees)
//
// The model has two levels: a round's figure is the truth, plus what these processes differ by,
// plus what is left of the samples' noise. Student's interval asks only that a round's figure is
// about normal, and not how large either part is. One round has no interval; two have a very wide
// one.
//
// Thread: pure functions.
#ifndef BENCH_COLLECTIVE_OVERHEAD_STATISTICS_H_
#define BENCH_COLLECTIVE_OVERHEAD_STATISTICS_H_

#include <vector>

namespace nccl_pulse::overhead {

struct Estimate {
  double mean = 0;
  double low = 0;   // -infinity: a single value
  double high = 0;  // +infinity: likewise

  bool Holds(double value) const { return low <= value && value <= high; }
};

double Median(std::vector<double> values);

// t such that |T| < t with probability `confidence`, in (0, 1); T is Student's with that many
// degrees of freedom, 1 or more.
double StudentQuantile(int degrees, double confidence);

// `values` must not be empty.
Estimate MeanWithInterval(const std::vector<double>& values, double confidence);

// The largest number of `trials` that may happen, each with `probability`, before it is no longer
// chance: more of them happen with a probability of 5 % at most.
int MostByChance(int trials, double probability);

struct Pair {
  int round;
  double base_us;  // no plugin
  double with_us;
};

// Medians of one round's pairs.
struct RoundFigure {
  int round = 0;
  int pairs = 0;
  double base_us = 0;
  double with_us = 0;
  double ratio = 0;
  double difference_us = 0;
};

struct Comparison {
  int pairs = 0;  // 0: nothing to compare
  std::vector<RoundFigure> rounds;
  // Means over rounds.
  double base_us = 0;
  double with_us = 0;
  Estimate ratio;
  Estimate difference_us;
  // Of all time spent: sees what is rare, like a plugin's work once a second, and the median not.
  double mean_ratio = 0;
};

Comparison Compare(const std::vector<Pair>& pairs, double confidence);

// A slowdown up to the larger of the two is accepted.
struct Criterion {
  double relative = 0.01;
  double absolute_us = 0.25;
};

enum class Verdict {
  kPass,
  kFail,
  kUndecided,
  kSuspect,  // the measurement is at fault
  kAlike,    // of two sets without a plugin
  kDiffer,
};
const char* Name(Verdict verdict);

// Of a plugin, as if nothing were wrong with the measurement; rows.h looks whether there is.
Verdict Judge(const Comparison& comparison, const Criterion& criterion);
// Of a set without a plugin beside others without one.
Verdict JudgeTwin(const Comparison& comparison);

// Beyond the interval, and by more than a timing can resolve.
bool IsSlower(const Comparison& comparison);
bool IsFaster(const Comparison& comparison);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_STATISTICS_H_
