#include "bench/collective_overhead/plan.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

// Four sets, samples of 20 ms.
PlanInput Input(double seconds, double start_seconds, int points) {
  return {seconds, start_seconds, points, 4, 20000};
}

TEST(PlanTest, FourMinutesAreFiveRoundsOfTheWholeGridAtLeast) {
  // All sizes and modes, without compute and with it.
  EXPECT_GE(MakePlan(Input(238, 5, 27), 0).rounds, 8);
  EXPECT_GE(MakePlan(Input(238, 5, 54), 0).rounds, 5);
  EXPECT_GE(MakePlan(Input(238, 12, 54), 0).rounds, 5);
}

TEST(PlanTest, StartingTakesAThirdAtMost) {
  for (const double seconds : {60.0, 120.0, 240.0, 1000.0}) {
    for (const double start : {1.0, 3.0, 6.0}) {
      const Plan plan = MakePlan(Input(seconds, start, 1), 0);
      if (plan.rounds <= kFewestRounds) continue;
      EXPECT_LE(plan.rounds * start, seconds / 3 + 1e-9) << seconds << " " << start;
    }
  }
}

TEST(PlanTest, TooMuchForTheTimeGetsFiveRoundsWithLessForEachPoint) {
  const Plan plan = MakePlan(Input(60, 4, 100), 0);
  EXPECT_EQ(plan.rounds, kFewestRounds);
  EXPECT_NEAR(plan.point_seconds, (12.0 - 4) / 100, 1e-9);
}

TEST(PlanTest, TooShortForFiveStartsIsFewerRounds) {
  EXPECT_EQ(MakePlan(Input(20, 6, 3), 0).rounds, 2);
  EXPECT_EQ(MakePlan(Input(3, 6, 3), 0).rounds, 1);
  EXPECT_EQ(MakePlan(Input(3, 6, 3), 0).point_seconds, 0);
  EXPECT_EQ(MakePlan(Input(-3, 6, 3), 0).rounds, 1);
}

TEST(PlanTest, RoundsHaveALimitAndCanBeAskedFor) {
  EXPECT_EQ(MakePlan(Input(1e5, 4, 3), 0).rounds, kMostRounds);
  EXPECT_EQ(MakePlan(Input(100, 4, 3), 7).rounds, 7);
}

TEST(PlanTest, SamplesAreShorterRatherThanFew) {
  const PlanInput roomy = Input(240, 4, 9);
  EXPECT_EQ(SampleUs(roomy, MakePlan(roomy, 0)), 20000);
  const PlanInput tight = Input(100, 4, 60);  // 5 rounds of 20 s, 0.27 s for a point
  const double sample_us = SampleUs(tight, MakePlan(tight, 0));
  EXPECT_NEAR(sample_us, 6800, 100);
  const PlanInput hopeless = Input(25, 4, 500);
  EXPECT_EQ(SampleUs(hopeless, MakePlan(hopeless, 0)), 1000);
}

TEST(PlanTest, TextHasAllNumbers) {
  const PlanInput input = Input(240, 4, 54);
  EXPECT_EQ(
      PlanText(input, MakePlan(input, 8)),
      "8 rounds of 30.0 s, 4.0 s of them for starting; 54 points, 0.48 s for each in a round");
}

}  // namespace
}  // namespace nccl_pulse::overhead
