// What makes a late rank a straggler: a threshold is met on one side and missed on the other.
#include "exporter/diagnosis/diagnosis.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr int kNodeRanks = 8;
constexpr int kLateRank = 5;

struct Lateness {
  int calls = 2000;
  int late_of_100 = 100;  // into so many of 100 calls in a row
  int64_t late_ns = kMs;
  int64_t period_ns = 10 * kMs;
  int others_take_turns = 0;  // so many of them, into the other calls
};

// What is said of a job in which nobody else is ever late.
std::optional<Straggler> StragglerOf(const Lateness& lateness) {
  SimulatedJob job(kNodeRanks);
  job.AddCommunicator(kComm, {0, 1, 2, 3, 4, 5, 6, 7});
  Diagnosis diagnosis;
  std::optional<Straggler> found;
  const auto look = [&] { found = diagnosis.Update(job.Set(), job.now()).at(0).straggler; };
  for (int i = 0; i < lateness.calls; ++i) {
    std::vector<int64_t> arrivals(kNodeRanks, 0);
    // Spread evenly, so that any stretch of calls has the same share.
    const bool late = (i + 1) * lateness.late_of_100 / 100 != i * lateness.late_of_100 / 100;
    if (late) arrivals[kLateRank] = lateness.late_ns;
    if (!late && lateness.others_take_turns != 0) {
      arrivals[i % lateness.others_take_turns] = lateness.late_ns;
    }
    job.Collective(kComm, "AllReduce", arrivals, 10 * kUs);
    job.Advance(lateness.period_ns - 10 * kUs -
                (late || lateness.others_take_turns != 0 ? lateness.late_ns : 0));
    if (i % 16 == 15) look();  // before the ring of last calls has gone round
  }
  look();
  return found;
}

// One other is last into the rest of the calls.
TEST(StragglerShare, OfTwoItIsTheOneThatIsLastIntoMostOfTheLateCallsOrBoth) {
  Lateness lateness;
  lateness.others_take_turns = 1;
  for (const int late_of_100 : {45, 55}) {
    lateness.late_of_100 = late_of_100;
    const std::optional<Straggler> both = StragglerOf(lateness);
    ASSERT_TRUE(both);
    EXPECT_EQ(both->ranks, std::vector<int32_t>({0, kLateRank}));
  }
  lateness.late_of_100 = 70;
  const std::optional<Straggler> straggler = StragglerOf(lateness);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, kLateRank);
  EXPECT_NEAR(straggler->late_share, 0.7, 0.02);
}

// What each has to do differs from call to call so much that it is last into half of them alone,
// but each of the others into far less.
TEST(StragglerShare, LateInTheMeanFarMoreThanAnyOtherIsEnough) {
  Lateness lateness;
  lateness.others_take_turns = 5;
  lateness.late_of_100 = 45;
  const std::optional<Straggler> straggler = StragglerOf(lateness);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, kLateRank);
  EXPECT_NEAR(straggler->late_share, 0.45, 0.02);
  lateness.late_of_100 = 25;
  EXPECT_FALSE(StragglerOf(lateness)) << "others are nearly as late";
}

// A job of steps with 24 layers, each with a call into which the rank comes last that has most to
// do in this step.
class SteppedJob {
 public:
  explicit SteppedJob(int ranks = kNodeRanks, int steps_of_barrier = 1)
      : job_(ranks), ranks_(ranks), steps_of_barrier_(steps_of_barrier) {
    std::vector<int> members;
    for (int i = 0; i < ranks; ++i) members.push_back(i);
    job_.AddCommunicator(kComm, members);
  }

  // `last`: who has most to do.
  void Step(int last, int layers = 24, int64_t layer_ns = 10 * kMs) {
    std::vector<int64_t> arrivals(ranks_);
    // The others differ, too, from step to step.
    for (int i = 0; i < ranks_; ++i) arrivals[i] = (i * 7 + steps_ * 3) % ranks_ * 20 * kUs;
    arrivals[last] = layer_ns / 10;
    for (int i = 0; i < layers; ++i) {
      job_.Collective(kComm, "AllGather", arrivals, 10 * kUs);
      job_.Advance(layer_ns);
    }
    if (++steps_ % steps_of_barrier_ != 0) return;
    job_.Collective(kComm, "AllReduce", std::vector<int64_t>(ranks_), 10 * kUs, 0);
  }
  // Each has most to do in turn.
  void Steps(int count) {
    for (int i = 0; i < count; ++i) Step(i % ranks_);
  }

  std::optional<Straggler> Look() { return Diagnose().straggler; }
  CommunicatorDiagnosis Diagnose() { return diagnosis_.Update(job_.Set(), job_.now()).at(0); }

 private:
  SimulatedJob job_;
  Diagnosis diagnosis_;
  int ranks_, steps_of_barrier_;
  int steps_ = 0;
};

TEST(StragglerRounds, TheCallsOfOneStepAreOneOccasion) {
  SteppedJob job;
  job.Steps(30);
  job.Step(kLateRank);
  job.Step(kLateRank);
  const CommunicatorDiagnosis diagnosis = job.Diagnose();
  EXPECT_FALSE(diagnosis.straggler);
  ASSERT_TRUE(diagnosis.perhaps_late) << "it may be";
  EXPECT_EQ(diagnosis.perhaps_late->rank, kLateRank);
}

TEST(StragglerRounds, StepsThatFollowEachOtherAreEnoughIfTheyAreMany) {
  SteppedJob job;
  job.Steps(80);
  int steps = 0;
  for (; steps < 30 && !job.Look(); ++steps) job.Step(kLateRank);
  EXPECT_GE(steps, 7);
  EXPECT_LE(steps, 12);
  EXPECT_FALSE(job.Diagnose().perhaps_late) << "it is";
}

// In one look, which knows the calls of less than two steps.
TEST(StragglerRounds, OneLookIsEnoughWhereItWasLateInTheMeanOfAllCalls) {
  SteppedJob job;
  for (int i = 0; i < 30; ++i) job.Step(i % 4 == 0 ? i % kNodeRanks : kLateRank);
  const std::optional<Straggler> straggler = job.Look();
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, kLateRank);
}

// In few steps somebody has had most to do, and once more in the last one.
TEST(StragglerRounds, AThirdOfAFewStepsIsNotEnough) {
  for (const int steps : {18, 180}) {
    SteppedJob job;
    for (int i = 0; i < steps; ++i) job.Step(i % 3 == 2 ? kLateRank : i % kNodeRanks);
    EXPECT_EQ(job.Look().has_value(), steps == 180) << steps;
  }
}

// A barrier every 20 steps of 6 s: a round is not taken to be as long.
TEST(StragglerRounds, RareBarriersDoNotHideAStraggler) {
  SteppedJob job(8, 20);
  job.Steps(2000);
  EXPECT_FALSE(job.Look());
  int steps = 0;
  for (; steps < 200 && !job.Look(); ++steps) job.Step(kLateRank, 24, 250 * kMs);
  EXPECT_GE(steps, 30) << "seven times 30 s";
  EXPECT_LE(steps, 60);
}

// So small a difference may have another cause than what is seen now.
TEST(StragglerRounds, LittleInTheMeanOfVeryManyCallsIsNotEnough) {
  SteppedJob job;
  for (int i = 0; i < 3000; ++i) job.Step(i % 8 == 0 ? kLateRank : (i / 8 + i) % kNodeRanks, 8);
  job.Step(kLateRank);
  EXPECT_FALSE(job.Look());
}

TEST(StragglerRounds, OfTwoRanksItTakesEighteenSteps) {
  SteppedJob job(2);
  job.Steps(200);
  int steps = 0;
  for (; steps < 60 && !job.Look(); ++steps) job.Step(1);
  EXPECT_GE(steps, 18);
  EXPECT_LE(steps, 40);
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
