#include <algorithm>
#include <cmath>
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

// Two-sided values of printed tables.
TEST(StudentTest, QuantilesAreTheTabulatedOnes) {
  EXPECT_NEAR(StudentQuantile(1, 0.95), 12.706, 0.001);
  EXPECT_NEAR(StudentQuantile(2, 0.95), 4.303, 0.001);
  EXPECT_NEAR(StudentQuantile(3, 0.95), 3.182, 0.001);
  EXPECT_NEAR(StudentQuantile(4, 0.95), 2.776, 0.001);
  EXPECT_NEAR(StudentQuantile(9, 0.99), 3.250, 0.001);
  EXPECT_NEAR(StudentQuantile(30, 0.95), 2.042, 0.001);
  EXPECT_NEAR(StudentQuantile(1000, 0.95), 1.962, 0.001);
}

TEST(IntervalTest, KnownValues) {
  // Mean 3, standard error sqrt(2.5 / 5).
  const Estimate estimate = MeanWithInterval({1, 2, 3, 4, 5}, 0.95);
  EXPECT_EQ(estimate.mean, 3);
  EXPECT_NEAR(estimate.high - 3, 2.776 * std::sqrt(0.5), 0.001);
  EXPECT_NEAR(3 - estimate.low, 2.776 * std::sqrt(0.5), 0.001);
}

TEST(IntervalTest, OneRoundHasNone) {
  const Estimate estimate = MeanWithInterval({5}, 0.95);
  EXPECT_EQ(estimate.mean, 5);
  EXPECT_TRUE(std::isinf(estimate.low));
  EXPECT_TRUE(std::isinf(estimate.high));
}

// P(Binomial(27, 0.05) > 3) is 4.4 %, > 2 is 15 %.
TEST(ChanceTest, TailsOfTheBinomial) {
  EXPECT_EQ(MostByChance(27, 0.05), 3);
  EXPECT_EQ(MostByChance(1, 0.05), 0);
  EXPECT_EQ(MostByChance(2, 0.05), 1);
  EXPECT_EQ(MostByChance(0, 0.05), 0);
  EXPECT_EQ(MostByChance(100, 0.05), 9);
}

std::vector<Pair> Pairs(double base_us, double with_us, int rounds = 6) {
  std::vector<Pair> pairs;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 5; ++i) {
      const double noise = 1 + 0.0005 * (round % 3 - 1) + 0.001 * (i - 2);
      pairs.push_back({round, base_us, with_us * noise});
    }
  }
  return pairs;
}

TEST(JudgeTest, EitherLimitSuffices) {
  const auto judge = [](const std::vector<Pair>& pairs) {
    return Judge(Compare(pairs, 0.95), Criterion());  // 1 %, 0.25 us
  };
  EXPECT_EQ(judge(Pairs(100, 100.5)), Verdict::kPass);
  EXPECT_EQ(judge(Pairs(100, 105)), Verdict::kFail);
  EXPECT_EQ(judge(Pairs(6, 6.2)), Verdict::kPass);  // 3 %, 0.2 us
  EXPECT_EQ(judge(Pairs(6, 6.4)), Verdict::kFail);
  EXPECT_EQ(judge(Pairs(100, 101)), Verdict::kUndecided);
  EXPECT_EQ(judge(Pairs(100, 100, 1)), Verdict::kUndecided);
  EXPECT_EQ(judge(Pairs(100, 200, 1)), Verdict::kUndecided);
}

TEST(JudgeTest, TwinsDifferBeyondTheInterval) {
  EXPECT_EQ(JudgeTwin(Compare(Pairs(100, 100), 0.95)), Verdict::kAlike);
  EXPECT_EQ(JudgeTwin(Compare(Pairs(100, 100.2), 0.95)), Verdict::kDiffer);
  EXPECT_EQ(JudgeTwin(Compare(Pairs(100, 99.8), 0.95)), Verdict::kDiffer);
  EXPECT_EQ(JudgeTwin(Compare(Pairs(100, 120, 1), 0.95)), Verdict::kUndecided);
  // A tenth of a nanosecond of 100 us is not told apart, however often.
  const std::vector<Pair> close = {{0, 100, 100.0001}, {1, 100, 100.0001}, {2, 100, 100.0001}};
  EXPECT_EQ(JudgeTwin(Compare(close, 0.95)), Verdict::kAlike);
}

TEST(CompareTest, PairsCancelWhatBothSidesShare) {
  std::vector<Pair> pairs;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 4; ++i) {
      const double us = 100.0 + 10 * i + 50 * round;
      pairs.push_back({round, us, us * 1.02});
    }
  }
  const Comparison comparison = Compare(pairs, 0.95);
  EXPECT_NEAR(comparison.ratio.low, 1.02, 1e-9);
  EXPECT_NEAR(comparison.ratio.high, 1.02, 1e-9);
  EXPECT_EQ(comparison.base_us, 215);
}

TEST(CompareTest, RoundsAreTheSampleHoweverManyPairs) {
  std::vector<Pair> pairs;
  for (int round = 0; round < 4; ++round) {
    const double own = round % 2 == 0 ? 1.02 : 0.98;
    const int count = round == 0 ? 500 : 3;
    for (int i = 0; i < count; ++i) pairs.push_back({round, 100, 100 * own});
  }
  const Comparison comparison = Compare(pairs, 0.95);
  EXPECT_EQ(comparison.pairs, 509);
  ASSERT_EQ(comparison.rounds.size(), 4u);
  EXPECT_EQ(comparison.rounds[0].pairs, 500);
  EXPECT_NEAR(comparison.ratio.mean, 1, 1e-12);
  EXPECT_NEAR(comparison.ratio.high, 1 + 3.182 * 0.0231 / 2, 1e-4);
  EXPECT_EQ(Judge(comparison, Criterion()), Verdict::kUndecided);
}

TEST(CompareTest, OutliersDoNotMoveARoundAndShowInTheMean) {
  std::vector<Pair> pairs = Pairs(100, 100);
  pairs[3].with_us = 400;
  const Comparison comparison = Compare(pairs, 0.95);
  EXPECT_LT(comparison.ratio.high, 1.01);
  EXPECT_NEAR(comparison.mean_ratio, 1.1, 0.001);
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

TEST(ScheduleTest, EveryoneIsFirstAsOftenAsOthers) {
  Schedule schedule(3);
  std::vector<int> first(4, 0);
  for (int i = 0; i < 4000; ++i) {
    ++first[static_cast<std::size_t>(schedule.Shuffle({0, 1, 2, 3}).front())];
  }
  for (const int times : first) EXPECT_NEAR(times, 1000, 120);
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
