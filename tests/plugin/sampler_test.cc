// Which calls are timed. Everything is a pure function of its inputs: no figure here is random.
#include "plugin/tracker/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace nccl_pulse {
namespace {

constexpr uint64_t kComm = 0x5f3759df12345678;

// A sampler that has come to rest at this exponent.
void SetExponent(Sampler& sampler, int exponent) {
  // The budget's rate at this exponent, less a bit.
  const double rate = Sampler::kTimedPerSecond * std::pow(2.0, exponent) * 0.9;
  sampler.Adapt(0, 1);
  if (exponent > 0) sampler.Adapt(rate, 1);
  ASSERT_EQ(sampler.exponent(), exponent);
}

// Two ranks whose launch rates differ, and with them their exponents: what the coarser one times,
// the finer one times too, without a word between them.
TEST(SamplerTest, RanksAgree) {
  for (int fine = 0; fine <= 10; ++fine) {
    for (int coarse = fine; coarse <= 10; ++coarse) {
      Sampler one;
      Sampler other;
      SetExponent(one, fine);
      SetExponent(other, coarse);
      uint64_t timed_by_fine = 0;
      uint64_t timed_by_coarse = 0;
      for (uint32_t op = 2; op < 6; ++op) {
        for (uint64_t call = 0; call < 5000; ++call) {
          const bool by_fine = one.ShouldTime(Sampler::SeedOf(kComm), op, 3, call);
          const bool by_coarse = other.ShouldTime(Sampler::SeedOf(kComm), op, 3, call);
          EXPECT_TRUE(by_fine || !by_coarse) << fine << " " << coarse << " " << call;
          EXPECT_TRUE(fine != coarse || by_fine == by_coarse);
          timed_by_fine += by_fine ? 1 : 0;
          timed_by_coarse += by_coarse ? 1 : 0;
        }
      }
      // Of 20000 calls 2^-n, within five standard deviations.
      EXPECT_NEAR(static_cast<double>(timed_by_fine), 20000 * std::pow(0.5, fine),
                  5 * std::sqrt(20000 * std::pow(0.5, fine)) + 10);
      EXPECT_NEAR(static_cast<double>(timed_by_coarse), 20000 * std::pow(0.5, coarse),
                  5 * std::sqrt(20000 * std::pow(0.5, coarse)) + 10);
    }
  }
}

TEST(SamplerTest, TheFirstTwoCallsOfEachAreNeverTimed) {
  Sampler sampler;
  SetExponent(sampler, 0);
  for (uint64_t comm = 0; comm < 100; ++comm) {
    for (uint32_t op = 0; op < 16; ++op) {
      for (uint32_t size = 0; size < 12; ++size) {
        EXPECT_FALSE(sampler.ShouldTime(Sampler::SeedOf(comm), op, size, 0));
        EXPECT_FALSE(sampler.ShouldTime(Sampler::SeedOf(comm), op, size, 1));
        EXPECT_TRUE(sampler.ShouldTime(Sampler::SeedOf(comm), op, size, 2));
      }
    }
  }
}

// A program that repeats itself: in each round `period` calls of different kinds, two of them of
// the same kind. Each kind must come to its share of the timed calls; and so must each place of a
// kind that occurs several times in a round, or the first layer would speak for all.
TEST(SamplerTest, EveryKindOfAPeriodicProgramIsReachedInProportion) {
  constexpr int kExponent = 6;
  Sampler sampler;
  SetExponent(sampler, kExponent);
  double chi_square = 0;
  int degrees = 0;
  for (int period = 2; period <= 64; ++period) {
    const int rounds = (1 << 20) / period;
    std::vector<uint64_t> timed(static_cast<size_t>(period));
    std::vector<uint64_t> calls(static_cast<size_t>(period));
    for (int round = 0; round < rounds; ++round) {
      for (int place = 0; place < period; ++place) {
        const int kind = place == 1 ? 0 : place;  // the first two are one kind
        const auto op = static_cast<uint32_t>(2 + kind % 8);
        const auto size = static_cast<uint32_t>(kind / 8);
        const uint64_t call = calls[static_cast<size_t>(kind)]++;
        if (sampler.ShouldTime(Sampler::SeedOf(kComm + static_cast<uint64_t>(period)), op, size,
                               call)) {
          ++timed[static_cast<size_t>(place)];
        }
      }
    }
    const double expected = rounds / std::pow(2.0, kExponent);
    for (uint64_t count : timed) {
      const double difference = static_cast<double>(count) - expected;
      EXPECT_LT(std::abs(difference), 5 * std::sqrt(expected)) << "period " << period;
      chi_square += difference * difference / expected;
      ++degrees;
    }
  }
  // Of a chi-square distribution with so many degrees of freedom: mean and five deviations.
  EXPECT_NEAR(chi_square, degrees, 5 * std::sqrt(2.0 * degrees));
}

TEST(SamplerTest, TheBudgetIsKeptAtAnyRate) {
  for (int gpus = 1; gpus <= 8; ++gpus) {
    for (double rate = 1; rate <= 1e6; rate *= 1.3) {
      Sampler sampler;
      sampler.Adapt(rate, gpus);
      const double budget = Sampler::kTimedPerSecond * gpus;
      const double timed = rate / std::pow(2.0, sampler.exponent());
      EXPECT_LE(timed, budget) << rate;
      // Nor is it wasted: all of what fits, or half of it (and a bit, when n came down).
      EXPECT_GE(timed, std::min(rate, budget * 0.39)) << rate;
      EXPECT_TRUE(rate >= budget * 0.8 || sampler.exponent() == 0) << rate;
    }
  }
  Sampler sampler;
  sampler.Adapt(1e300, 1);
  EXPECT_EQ(sampler.exponent(), kMostSamplingExponent);
  sampler.Adapt(0, 0);
  EXPECT_EQ(sampler.exponent(), 0);
}

// A rate that swings a little around a step does not take n with it.
TEST(SamplerTest, AdaptingHasHysteresis) {
  for (int exponent = 1; exponent <= 12; ++exponent) {
    const double step = Sampler::kTimedPerSecond * std::pow(2.0, exponent);
    Sampler sampler;
    sampler.Adapt(step * 1.01, 1);
    int changes = 0;
    int last = sampler.exponent();
    EXPECT_EQ(last, exponent + 1);
    for (int i = 0; i < 1000; ++i) {
      sampler.Adapt(step * (i % 2 == 0 ? 0.9 : 1.1), 1);
      changes += sampler.exponent() != last ? 1 : 0;
      last = sampler.exponent();
    }
    EXPECT_EQ(changes, 0) << exponent;
    sampler.Adapt(step * 0.7, 1);
    EXPECT_EQ(sampler.exponent(), exponent);
  }
}

TEST(SamplerTest, TheAllowanceIsOneSecondsBudget) {
  const auto spend_all = [](Sampler& sampler) {
    int spent = 0;
    while (spent < 10000 && sampler.Spend()) ++spent;
    return spent;
  };
  Sampler sampler;
  EXPECT_EQ(spend_all(sampler), Sampler::kTimedPerSecond);
  EXPECT_FALSE(sampler.Spend());
  sampler.Adapt(1e5, 4);
  EXPECT_EQ(spend_all(sampler), 4 * Sampler::kTimedPerSecond);
  // It does not grow by being left alone.
  for (int i = 0; i < 10; ++i) sampler.Adapt(0, 1);
  EXPECT_EQ(spend_all(sampler), Sampler::kTimedPerSecond);
}

TEST(SamplerTest, AnotherBudgetHoldsAtOnce) {
  constexpr double kRate = 64 * Sampler::kTimedPerSecond;
  Sampler sampler;
  sampler.Adapt(kRate, 1);
  ASSERT_EQ(sampler.exponent(), 6);
  sampler.SetBudget(1000000);
  int spent = 0;
  while (spent < 2 * Sampler::kTimedPerSecond && sampler.Spend()) ++spent;
  EXPECT_EQ(spent, 2 * Sampler::kTimedPerSecond);
  sampler.Adapt(kRate, 1);
  EXPECT_EQ(sampler.exponent(), 0) << "all of them";
  sampler.SetBudget(Sampler::kTimedPerSecond);
  sampler.Adapt(kRate, 1);
  EXPECT_EQ(sampler.exponent(), 6);
  spent = 0;
  while (sampler.Spend()) ++spent;
  EXPECT_EQ(spent, Sampler::kTimedPerSecond);
}

TEST(SamplerTest, OneInSoManyIsTimedWhateverTheRate) {
  Sampler sampler(-64);
  EXPECT_EQ(sampler.exponent(), 6);
  sampler.SetBudget(-1);
  EXPECT_EQ(sampler.exponent(), 0) << "at once";
  sampler.Adapt(1e9, 1);
  EXPECT_EQ(sampler.exponent(), 0);
  int spent = 0;
  while (spent < 2000000 && sampler.Spend()) ++spent;
  EXPECT_EQ(spent, 2000000) << "more than any budget";
  sampler.SetBudget(-(1 << kMostSamplingExponent));
  EXPECT_EQ(sampler.exponent(), kMostSamplingExponent);
  sampler.SetBudget(100);
  sampler.Adapt(6400, 1);
  EXPECT_EQ(sampler.exponent(), 6);
}

}  // namespace
}  // namespace nccl_pulse
