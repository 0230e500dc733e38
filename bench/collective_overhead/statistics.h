// From paired samples to a verdict.
//
// Every block of the schedule times each configuration, so a block gives one pair (no plugin, with
// plugin). Per pair: the ratio and the difference. Stated are their medians, with the interval
// between two order statistics that holds the true median with at least the confidence asked for
// (sign test): exact for any distribution, nothing is resampled, outliers move it by their number
// and not by their size. Below 6 pairs a 95 % interval does not exist and nothing is decided.
//
// A set of processes has its own memory pages and connections, and with them a speed of its own.
// Within a round (one start of all processes) no number of pairs averages that out. From
// `kRoundsAsUnits` rounds on, the rounds' medians are the sample; below, all pairs are, and the
// interval says nothing about another start. A configuration without a plugin beside the first one
// shows what that is worth.
//
// Thread: pure functions.
#ifndef BENCH_COLLECTIVE_OVERHEAD_STATISTICS_H_
#define BENCH_COLLECTIVE_OVERHEAD_STATISTICS_H_

#include <string>
#include <vector>

namespace nccl_pulse::overhead {

inline constexpr int kRoundsAsUnits = 6;

struct Estimate {
  double median = 0;
  double low = 0;   // -infinity: the sample is too small for this confidence
  double high = 0;  // +infinity: likewise
};

double Median(std::vector<double> values);

// `values` must not be empty; `confidence` in (0, 1).
Estimate MedianWithInterval(std::vector<double> values, double confidence);

// The smallest number of values for which MedianWithInterval has ends.
int SmallestSample(double confidence);

struct Pair {
  int round;
  double base_us;  // no plugin
  double with_us;
};

// A slowdown up to the larger of the two is accepted.
struct Criterion {
  double relative = 0.01;
  double absolute_us = 0.25;
};

enum class Verdict { kPass, kFail, kUndecided };
const char* Name(Verdict verdict);

struct Comparison {
  int pairs = 0;
  int units = 0;  // what the interval is made of: pairs, or rounds
  double base_us = 0;
  double with_us = 0;
  Estimate ratio;
  Estimate difference_us;
  // Of all time spent: sees what is rare, like a plugin's work once a second, and the median not.
  double mean_ratio = 0;
  Verdict verdict = Verdict::kUndecided;
};

// `pairs` must not be empty.
Comparison Compare(const std::vector<Pair>& pairs, double confidence, const Criterion& criterion);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_STATISTICS_H_
