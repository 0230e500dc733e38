// What makes a late rank a straggler: a threshold is met on one side and missed on the other.
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/testing/simulated_job.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kComm = 0xc0;
constexpr int kRanks = 8;
constexpr int kLateRank = 5;

struct Lateness {
  int calls = 2000;
  int late_of_100 = 100;  // into so many of 100 calls in a row
  int64_t late_ns = kMs;
  int64_t period_ns = 10 * kMs;
  bool others_take_turns = false;  // into the other calls
};

// What is said of a job in which nobody else is ever late.
std::optional<Straggler> StragglerOf(const Lateness& lateness) {
  SimulatedJob job(kRanks);
  job.AddCommunicator(kComm, {0, 1, 2, 3, 4, 5, 6, 7});
  Diagnosis diagnosis;
  std::optional<Straggler> found;
  const auto look = [&] { found = diagnosis.Update(job.Set(), job.now()).at(0).straggler; };
  for (int i = 0; i < lateness.calls; ++i) {
    std::vector<int64_t> arrivals(kRanks, 0);
    // Spread evenly, so that any stretch of calls has the same share.
    const bool late = (i + 1) * lateness.late_of_100 / 100 != i * lateness.late_of_100 / 100;
    if (late) arrivals[kLateRank] = lateness.late_ns;
    if (!late && lateness.others_take_turns) {
      arrivals[kLateRank + 1 + i % (kRanks - 1 - kLateRank)] = lateness.late_ns;
    }
    job.Collective(kComm, "AllReduce", arrivals, 10 * kUs);
    job.Advance(lateness.period_ns - 10 * kUs -
                (late || lateness.others_take_turns ? lateness.late_ns : 0));
    if (i % 16 == 15) look();  // before the ring of last calls has gone round
  }
  look();
  return found;
}

TEST(StragglerShare, LastIntoLessThanMostOfTheLateCallsIsNoStraggler) {
  Lateness lateness;
  lateness.others_take_turns = true;
  lateness.late_of_100 = 45;
  EXPECT_FALSE(StragglerOf(lateness));
  lateness.late_of_100 = 55;
  EXPECT_FALSE(StragglerOf(lateness));
  lateness.late_of_100 = 70;
  const std::optional<Straggler> straggler = StragglerOf(lateness);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, kLateRank);
  EXPECT_NEAR(straggler->late_share, 0.7, 0.02);
}

// What one look knows is of so few steps that 70 % may be chance.
TEST(StragglerShare, LastIntoThreeQuartersOfTheLateCallsOfOneLook) {
  Lateness lateness;
  lateness.others_take_turns = true;
  lateness.calls = 30;
  lateness.late_of_100 = 70;
  EXPECT_FALSE(StragglerOf(lateness));
  lateness.late_of_100 = 80;
  EXPECT_TRUE(StragglerOf(lateness));
}

// Of a step's calls the first waits for its host; nobody is waited for in the others.
TEST(StragglerShare, OneCallOfTenIsEnough) {
  Lateness lateness;
  lateness.late_of_100 = 10;
  lateness.late_ns = 6 * kMs;
  const std::optional<Straggler> straggler = StragglerOf(lateness);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, kLateRank);
  EXPECT_NEAR(straggler->seconds_per_second, 0.06, 0.01);
  lateness.calls = 70;
  EXPECT_FALSE(StragglerOf(lateness)) << "seven say nothing";
}

TEST(StragglerShare, WhatCostsLittleIsNoStraggler) {
  Lateness lateness;
  lateness.late_ns = 150 * kUs;  // 1.5 % of the time
  EXPECT_FALSE(StragglerOf(lateness));
  lateness.late_ns = 300 * kUs;
  const std::optional<Straggler> straggler = StragglerOf(lateness);
  ASSERT_TRUE(straggler);
  EXPECT_NEAR(straggler->seconds_per_second, 0.03, 0.003);
}

TEST(StragglerShare, WhatEventsDifferByIsNoLateness) {
  Lateness lateness;
  lateness.period_ns = 200 * kUs;
  lateness.late_ns = 15 * kUs;  // 7.5 % of the time
  EXPECT_FALSE(StragglerOf(lateness));
  lateness.late_ns = 25 * kUs;
  EXPECT_TRUE(StragglerOf(lateness));
}

TEST(StragglerShare, AFewCallsSayNothing) {
  Lateness lateness;
  lateness.calls = 15;
  EXPECT_FALSE(StragglerOf(lateness));
  lateness.calls = 40;
  EXPECT_TRUE(StragglerOf(lateness));
}

}  // namespace
}  // namespace nccl_pulse
