#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "bench/collective_overhead/schedule.h"
#include "bench/collective_overhead/statistics.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

TEST(MedianTest, OfOddAndEvenNumbers) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

// The ranks that tables of the sign test's interval give for 95 %.
TEST(IntervalTest, EndsAreTheKnownOrderStatistics) {
  const auto ends = [](int n) {
    std::vector<double> values;
    for (int i = n; i >= 1; --i) values.push_back(i);
    const Estimate estimate = MedianWithInterval(values, 0.95);
    return std::make_pair(estimate.low, estimate.high);
  };
  EXPECT_EQ(ends(6), std::make_pair(1.0, 6.0));
  EXPECT_EQ(ends(10), std::make_pair(2.0, 9.0));
  EXPECT_EQ(ends(20), std::make_pair(6.0, 15.0));
  EXPECT_EQ(ends(50), std::make_pair(18.0, 33.0));
}

TEST(IntervalTest, TooFewValuesHaveNone) {
  const Estimate estimate = MedianWithInterval({1, 2, 3, 4, 5}, 0.95);
  EXPECT_EQ(estimate.median, 3);
  EXPECT_TRUE(std::isinf(estimate.low));
  EXPECT_TRUE(std::isinf(estimate.high));
  EXPECT_EQ(SmallestSample(0.95), 6);
  EXPECT_EQ(SmallestSample(0.99), 8);
}

// What the confidence promises, on a distribution with a long tail.
TEST(IntervalTest, HoldsTheTrueMedianAsOftenAsItSays) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> values(0, 1);  // median 1
  constexpr int kTrials = 4000;
  int held = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> sample(30);
    for (double& value : sample) value = values(random);
    const Estimate estimate = MedianWithInterval(sample, 0.95);
    if (estimate.low <= 1 && 1 <= estimate.high) ++held;
  }
  EXPECT_GE(held, kTrials * 0.95 - 3 * std::sqrt(kTrials * 0.95 * 0.05));
  EXPECT_LE(held, kTrials * 0.99);
}

std::vector<Pair> Pairs(double base_us, double with_us, int count = 20) {
  std::vector<Pair> pairs;
  for (int i = 0; i < count; ++i) {
    const double noise = 1 + 0.001 * (i % 5 - 2);
    pairs.push_back({0, base_us, with_us * noise});
  }
  return pairs;
}

TEST(CompareTest, EitherLimitSuffices) {
  const Criterion criterion;  // 1 %, 0.25 us
  EXPECT_EQ(Compare(Pairs(100, 100.5), 0.95, criterion).verdict, Verdict::kPass);
  EXPECT_EQ(Compare(Pairs(100, 105), 0.95, criterion).verdict, Verdict::kFail);
  EXPECT_EQ(Compare(Pairs(6, 6.2), 0.95, criterion).verdict, Verdict::kPass);  // 3 %, 0.2 us
  EXPECT_EQ(Compare(Pairs(6, 6.4), 0.95, criterion).verdict, Verdict::kFail);
  EXPECT_EQ(Compare(Pairs(100, 101), 0.95, criterion).verdict, Verdict::kUndecided);
  EXPECT_EQ(Compare(Pairs(100, 90), 0.95, criterion).verdict, Verdict::kPass);
  EXPECT_EQ(Compare(Pairs(100, 105, 5), 0.95, criterion).verdict, Verdict::kUndecided);
}

TEST(CompareTest, PairsCancelWhatBothSidesShare) {
  std::vector<Pair> pairs;
  pairs.reserve(20);
  for (int i = 0; i < 20; ++i) pairs.push_back({0, 100.0 + 10 * i, (100.0 + 10 * i) * 1.02});
  const Comparison comparison = Compare(pairs, 0.95, Criterion());
  EXPECT_NEAR(comparison.ratio.low, 1.02, 1e-9);
  EXPECT_NEAR(comparison.ratio.high, 1.02, 1e-9);
  EXPECT_EQ(comparison.verdict, Verdict::kFail);
}

TEST(CompareTest, RareWorkShowsInTheMean) {
  std::vector<Pair> pairs = Pairs(100, 100);
  pairs[3].with_us = 300;
  const Comparison comparison = Compare(pairs, 0.95, Criterion());
  EXPECT_EQ(comparison.verdict, Verdict::kPass);
  EXPECT_NEAR(comparison.mean_ratio, 1.1, 0.001);
}

// Processes differ by 2 % from one start to the next, in either direction; the plugin costs
// nothing.
TEST(CompareTest, ManyRoundsAreTheUnits) {
  std::vector<Pair> pairs;
  for (int round = 0; round < 8; ++round) {
    const double own = round % 2 == 0 ? 1.02 : 0.98;
    for (int i = 0; i < 10; ++i) pairs.push_back({round, 100, 100 * own});
  }
  const Comparison comparison = Compare(pairs, 0.95, Criterion());
  EXPECT_EQ(comparison.pairs, 80);
  EXPECT_EQ(comparison.units, 8);
  EXPECT_LT(comparison.ratio.low, 0.99);
  EXPECT_GT(comparison.ratio.high, 1.01);
  EXPECT_EQ(comparison.verdict, Verdict::kUndecided);
}

TEST(ScheduleTest, BlocksAreMirroredPermutations) {
  Schedule schedule(1);
  std::set<std::vector<int>> orders;
  for (int i = 0; i < 200; ++i) {
    std::vector<int> block = schedule.NextBlock({0, 1, 2});
    ASSERT_EQ(block.size(), 6u);
    std::vector<int> reversed(block.rbegin(), block.rend());
    EXPECT_EQ(block, reversed);
    block.resize(3);
    orders.insert(block);
    std::sort(block.begin(), block.end());
    EXPECT_EQ(block, (std::vector<int>{0, 1, 2}));
  }
  EXPECT_EQ(orders.size(), 6u);  // all permutations come
}

TEST(ScheduleTest, LinearDriftCancels) {
  Schedule schedule(2);
  for (int i = 0; i < 50; ++i) {
    std::vector<double> sum(4, 0.0);
    double position = 0;
    for (const int member : schedule.NextBlock({0, 1, 2, 3})) {
      sum[static_cast<std::size_t>(member)] += position++;
    }
    for (const double of_member : sum) EXPECT_EQ(of_member, sum[0]);
  }
}

TEST(ScheduleTest, SameSeedSameOrder) {
  Schedule one(5), two(5), other(6);
  std::vector<int> first, second, third;
  for (int i = 0; i < 10; ++i) {
    for (const int member : one.NextBlock({0, 1, 2})) first.push_back(member);
    for (const int member : two.NextBlock({0, 1, 2})) second.push_back(member);
    for (const int member : other.NextBlock({0, 1, 2})) third.push_back(member);
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);
}

}  // namespace
}  // namespace nccl_pulse::overhead
