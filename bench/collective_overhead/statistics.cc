#include "bench/collective_overhead/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace nccl_pulse::overhead {
namespace {

double MedianOfSorted(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// The largest k such that the k-th smallest and the k-th largest of n values enclose the median
// with the confidence; 0: none. A value lies below the median with probability 1/2, so the interval
// misses with twice P(Binomial(n, 1/2) < k).
int EnclosingRank(int n, double confidence) {
  double log_ways = 0;  // to choose the values that lie below
  double missed = 0;
  for (int below = 0; below < n / 2; ++below) {
    missed += 2 * std::exp(log_ways - n * std::log(2.0));
    if (missed > 1 - confidence) return below;
    log_ways += std::log(static_cast<double>(n - below) / (below + 1));
  }
  return n / 2;
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return MedianOfSorted(values);
}

Estimate MedianWithInterval(std::vector<double> values, double confidence) {
  std::sort(values.begin(), values.end());
  Estimate estimate;
  estimate.median = MedianOfSorted(values);
  const int n = static_cast<int>(values.size());
  const int k = EnclosingRank(n, confidence);
  const double infinity = std::numeric_limits<double>::infinity();
  estimate.low = k > 0 ? values[static_cast<std::size_t>(k - 1)] : -infinity;
  estimate.high = k > 0 ? values[static_cast<std::size_t>(n - k)] : infinity;
  return estimate;
}

int SmallestSample(double confidence) {
  int n = 2;
  while (EnclosingRank(n, confidence) == 0) ++n;
  return n;
}

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kUndecided:
      break;
  }
  return "undecided";
}

Comparison Compare(const std::vector<Pair>& pairs, double confidence, const Criterion& criterion) {
  struct Values {
    std::vector<double> base_us, with_us, ratio, difference_us;
  };
  std::map<int, Values> rounds;
  Values all;
  double base_sum = 0;
  double with_sum = 0;
  for (const Pair& pair : pairs) {
    for (Values* values : {&all, &rounds[pair.round]}) {
      values->base_us.push_back(pair.base_us);
      values->with_us.push_back(pair.with_us);
      values->ratio.push_back(pair.with_us / pair.base_us);
      values->difference_us.push_back(pair.with_us - pair.base_us);
    }
    base_sum += pair.base_us;
    with_sum += pair.with_us;
  }

  Comparison result;
  result.pairs = static_cast<int>(pairs.size());
  result.base_us = Median(all.base_us);
  result.with_us = Median(all.with_us);
  result.mean_ratio = with_sum / base_sum;
  if (static_cast<int>(rounds.size()) >= kRoundsAsUnits) {
    Values medians;
    for (const auto& [round, values] : rounds) {
      medians.ratio.push_back(Median(values.ratio));
      medians.difference_us.push_back(Median(values.difference_us));
    }
    all = medians;
  }
  result.units = static_cast<int>(all.ratio.size());
  result.ratio = MedianWithInterval(all.ratio, confidence);
  result.difference_us = MedianWithInterval(all.difference_us, confidence);

  // "At most the larger of two limits" is kept when either limit is kept.
  if (result.ratio.high - 1 < criterion.relative ||
      result.difference_us.high < criterion.absolute_us) {
    result.verdict = Verdict::kPass;
  } else if (result.ratio.low - 1 > criterion.relative &&
             result.difference_us.low > criterion.absolute_us) {
    result.verdict = Verdict::kFail;
  }
  return result;
}

}  // namespace nccl_pulse::overhead
