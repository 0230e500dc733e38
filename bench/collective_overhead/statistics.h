// Compare turns paired samples into an estimate that holds for newly started processes.
//
// A set of processes has its own memory pages, connections and streams, and so its own speed: two
// equal sets differ by up to 2 %. More samples of one start do not average that out. So the unit is
// the round, one start of all sets in a random order:
//
//   pair     a block's time with the plugin and the mean of the sets without it (block: schedule.h)
//   round    the median of its pairs' differences, and of their ratios: robust against outliers
//   result   the mean of the rounds, with Student's interval over rounds (rounds - 1 degrees)
//
// The model has two levels: a round's figure is the truth, plus the deviation of these processes,
// plus the remaining noise of the samples. Student's interval only requires that a round's figure
// is about normal, not how large either part is. One round has no interval; two have a very wide
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
  double high = 0;  // +infinity: a single value

  bool Holds(double value) const { return low <= value && value <= high; }
};

double Median(std::vector<double> values);

// Returns t such that |T| < t with probability `confidence`, in (0, 1). T is Student's with
// `degrees` degrees of freedom, 1 or more.
double StudentQuantile(int degrees, double confidence);

// `values` must not be empty.
Estimate MeanWithInterval(const std::vector<double>& values, double confidence);

// Returns the largest number of `trials`, each with `probability`, that chance explains: more
// happen with a probability of at most 5 %.
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
  // Ratio of the total times: includes rare events like a plugin's work once a second, which the
  // median hides.
  double mean_ratio = 0;
};

Comparison Compare(const std::vector<Pair>& pairs, double confidence);

// Accepted slowdown: up to the larger of the two.
struct Criterion {
  double relative = 0.01;
  double absolute_us = 0.25;
};

enum class Verdict {
  kPass,
  kFail,
  kUndecided,
  kSuspect,  // the measurement is unreliable
  kAlike,    // of two sets without a plugin
  kDiffer,
};
const char* Name(Verdict verdict);

// Judges a plugin, assuming a good measurement; rows.h checks that.
Verdict Judge(const Comparison& comparison, const Criterion& criterion);
// Judges a set without a plugin against others without one.
Verdict JudgeTwin(const Comparison& comparison);

// True beyond the interval, and by more than a timing can resolve.
bool IsSlower(const Comparison& comparison);
bool IsFaster(const Comparison& comparison);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_STATISTICS_H_
