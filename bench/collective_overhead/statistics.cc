#include "bench/collective_overhead/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace nccl_pulse::overhead {
namespace {

constexpr double kPi = 3.14159265358979323846;
// Resolution as a share of a time: nanoseconds in a millisecond, the shortest timing.
constexpr double kResolution = 1e-5;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// P(|T| < t), as a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4).
double StudentWithin(double t, int degrees) {
  const double angle = std::atan(t / std::sqrt(degrees));
  const double cosine_squared = std::cos(angle) * std::cos(angle);
  const bool odd = degrees % 2 == 1;
  double term = odd ? std::cos(angle) : 1;
  double sum = 0;
  for (int i = odd ? 1 : 0; i <= degrees - 2; i += 2) {
    sum += term;
    term *= cosine_squared * (i + 1) / (i + 2);
  }
  if (odd) return 2 / kPi * (angle + std::sin(angle) * sum);
  return std::sin(angle) * sum;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double StudentQuantile(int degrees, double confidence) {
  double low = 0;
  double high = 1;
  while (StudentWithin(high, degrees) < confidence) high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (StudentWithin(middle, degrees) < confidence ? low : high) = middle;
  }
  return high;
}

Estimate MeanWithInterval(const std::vector<double>& values, double confidence) {
  Estimate estimate;
  estimate.mean = Mean(values);
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) {
    estimate.low = -kInfinity;
    estimate.high = kInfinity;
    return estimate;
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - estimate.mean) * (value - estimate.mean);
  }
  const double half = StudentQuantile(static_cast<int>(values.size()) - 1, confidence) *
                      std::sqrt(squares / (n - 1) / n);
  estimate.low = estimate.mean - half;
  estimate.high = estimate.mean + half;
  return estimate;
}

int MostByChance(int trials, double probability) {
  constexpr double kNoChance = 0.05;
  double exactly = std::pow(1 - probability, trials);
  double more = 1 - exactly;
  int count = 0;
  while (count < trials && more > kNoChance + 1e-9) {
    exactly *= (trials - count) / (count + 1.0) * probability / (1 - probability);
    more -= exactly;
    ++count;
  }
  return count;
}

Comparison Compare(const std::vector<Pair>& pairs, double confidence) {
  struct Values {
    std::vector<double> base_us, with_us, ratio, difference_us;
  };
  Comparison result;
  if (pairs.empty()) return result;
  std::map<int, Values> rounds;
  double base_sum = 0;
  double with_sum = 0;
  for (const Pair& pair : pairs) {
    Values& values = rounds[pair.round];
    values.base_us.push_back(pair.base_us);
    values.with_us.push_back(pair.with_us);
    values.ratio.push_back(pair.with_us / pair.base_us);
    values.difference_us.push_back(pair.with_us - pair.base_us);
    base_sum += pair.base_us;
    with_sum += pair.with_us;
  }
  result.pairs = static_cast<int>(pairs.size());
  result.mean_ratio = with_sum / base_sum;
  Values of_rounds;
  for (const auto& [round, values] : rounds) {
    const RoundFigure figure = {round,
                                static_cast<int>(values.ratio.size()),
                                Median(values.base_us),
                                Median(values.with_us),
                                Median(values.ratio),
                                Median(values.difference_us)};
    result.rounds.push_back(figure);
    of_rounds.base_us.push_back(figure.base_us);
    of_rounds.with_us.push_back(figure.with_us);
    of_rounds.ratio.push_back(figure.ratio);
    of_rounds.difference_us.push_back(figure.difference_us);
  }
  result.base_us = Mean(of_rounds.base_us);
  result.with_us = Mean(of_rounds.with_us);
  result.ratio = MeanWithInterval(of_rounds.ratio, confidence);
  result.difference_us = MeanWithInterval(of_rounds.difference_us, confidence);
  return result;
}

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kSuspect:
      return "suspect";
    case Verdict::kAlike:
      return "alike";
    case Verdict::kDiffer:
      return "DIFFER";
    case Verdict::kUndecided:
      break;
  }
  return "undecided";
}

Verdict Judge(const Comparison& comparison, const Criterion& criterion) {
  if (comparison.rounds.size() < 2) return Verdict::kUndecided;
  // "At most the larger of two limits" holds if either limit holds.
  if (comparison.ratio.high - 1 < criterion.relative ||
      comparison.difference_us.high < criterion.absolute_us) {
    return Verdict::kPass;
  }
  if (comparison.ratio.low - 1 > criterion.relative &&
      comparison.difference_us.low > criterion.absolute_us) {
    return Verdict::kFail;
  }
  return Verdict::kUndecided;
}

Verdict JudgeTwin(const Comparison& comparison) {
  if (comparison.rounds.size() < 2) return Verdict::kUndecided;
  return IsSlower(comparison) || IsFaster(comparison) ? Verdict::kDiffer : Verdict::kAlike;
}

bool IsSlower(const Comparison& comparison) {
  return comparison.ratio.low > 1 + kResolution && comparison.difference_us.low > 0;
}

bool IsFaster(const Comparison& comparison) {
  return comparison.ratio.high < 1 - kResolution && comparison.difference_us.high < 0;
}

}  // namespace nccl_pulse::overhead
