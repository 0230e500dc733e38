// Calls whose launches NCCL does not report: how many stand, and since when.
#include "plugin/tracker/unreported_calls.h"

#include <gtest/gtest.h>

#include "plugin/tracker/clock.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kGroup = 11;

class UnreportedCallsTest : public ::testing::Test {
 protected:
  UnreportedCallsTest() { clock_.StandAt(1000); }
  bool Look(const PendingCalls& pending, uint64_t operations = 0, uint32_t unfinished = UINT32_MAX,
            bool in_group = false, bool is_launching = false) {
    return standing_.Look(1, unfinished, unreported_, pending, operations, in_group, is_launching,
                          clock_);
  }

  Clock clock_;
  UnreportedCalls unreported_{};
  StandingCalls standing_{};
};

TEST_F(UnreportedCallsTest, CallsSinceTheLastLaunchStand) {
  EXPECT_TRUE(Look({1, 0, kGroup}));
  EXPECT_EQ(standing_.calls(), 1u);
  EXPECT_EQ(standing_.since_ns(), 1000u);
  clock_.StandAt(2000);
  EXPECT_FALSE(Look({1, 0, kGroup}));  // the same one: it stands since the first look
  EXPECT_EQ(standing_.since_ns(), 1000u);
  EXPECT_TRUE(Look({2, 0, kGroup}));
  EXPECT_EQ(standing_.since_ns(), 2000u);
  EXPECT_TRUE(Look({0, 1, kGroup}));
  EXPECT_EQ(standing_.calls(), 0u);
  EXPECT_EQ(standing_.since_ns(), 0u);
}

// CUDA_LAUNCH_BLOCKING, or a full launch queue: NCCL's thread is held in cuLaunchKernel.
TEST_F(UnreportedCallsTest, ALaunchThatLastsStandsInsideNccl) {
  const auto look = [this](uint64_t ns, uint32_t launch, bool is_launching) {
    clock_.StandAt(ns);
    return Look({0, launch, kGroup}, 0, UINT32_MAX, false, is_launching);
  };
  EXPECT_FALSE(look(1000, 1, true));
  EXPECT_FALSE(look(900001000, 1, true));  // not yet for long
  EXPECT_FALSE(look(900002000, 2, true));  // the next one
  EXPECT_TRUE(look(1900002000, 2, true));
  EXPECT_EQ(standing_.calls(), 1u);
  EXPECT_EQ(standing_.since_ns(), 900002000u);
  EXPECT_TRUE(standing_.are_in_group());
  EXPECT_TRUE(look(2900002000, 2, false));  // it has been made
  EXPECT_EQ(standing_.calls(), 0u);
  EXPECT_FALSE(standing_.are_in_group());
}

TEST_F(UnreportedCallsTest, AGroupThatHasNotEnded) {
  EXPECT_FALSE(Look({0, 0, 0}, 0, UINT32_MAX, true));  // its call has not been made
  EXPECT_FALSE(standing_.are_in_group());
  EXPECT_TRUE(Look({1, 0, kGroup}, 0, UINT32_MAX, true));
  EXPECT_TRUE(standing_.are_in_group());
  clock_.StandAt(2000);
  EXPECT_TRUE(Look({1, 0, kGroup}));  // it has, and launched nothing that is reported
  EXPECT_FALSE(standing_.are_in_group());
  EXPECT_EQ(standing_.since_ns(), 1000u);
  EXPECT_TRUE(Look({1, 0, kGroup}, 0, UINT32_MAX, true));
  EXPECT_TRUE(Look({0, 1, kGroup}, 0, UINT32_MAX, true));
  EXPECT_FALSE(standing_.are_in_group());
}

TEST_F(UnreportedCallsTest, CallsOfEarlierGroupsAreLeftUntilTheNextLaunch) {
  unreported_.Leave({2, 7, kGroup});
  unreported_.Leave({1, 7, kGroup + 1});
  EXPECT_EQ(unreported_.LeftAt(7), 3u);
  EXPECT_EQ(unreported_.LeftAt(8), 0u);
  Look({1, 7, kGroup + 2});
  EXPECT_EQ(standing_.calls(), 4u);
  Look({0, 8, kGroup + 2});
  EXPECT_EQ(standing_.calls(), 0u);
}

TEST_F(UnreportedCallsTest, OfAGroupWithoutAnOperationThoseAreHidden) {
  unreported_.BeginGroup(kGroup, true, 40);
  unreported_.AddCall(true);
  unreported_.AddCall(true);
  EXPECT_EQ(unreported_.Hidden(41), 2u);
  EXPECT_EQ(unreported_.Hidden(43), 0u);
  Look({0, 1, kGroup}, 41);
  EXPECT_EQ(standing_.calls(), 2u);
  Look({0, 1, kGroup}, 43);
  EXPECT_EQ(standing_.calls(), 0u);
}

TEST_F(UnreportedCallsTest, SendsAndReceivesAreNeverHidden) {
  unreported_.BeginGroup(kGroup, false, 40);
  unreported_.AddCall(false);
  unreported_.AddCall(true);
  EXPECT_EQ(unreported_.Hidden(40), 1u);
}

TEST_F(UnreportedCallsTest, WhatTheCopyEnginesMakeIsNeitherStandingNorHidden) {
  unreported_.BeginGroup(kGroup, true, 40);
  unreported_.AddCall(true);
  unreported_.AddCopy();
  EXPECT_EQ(unreported_.Standing({2, 0, kGroup}), 1u);
  EXPECT_EQ(unreported_.Standing({2, 0, kGroup + 1}), 2u);  // of another group
  EXPECT_EQ(unreported_.Hidden(40), 1u);
  EXPECT_EQ(unreported_.Hidden(41), 0u);
}

TEST_F(UnreportedCallsTest, NoMoreStandThanHaveNotFinished) {
  EXPECT_TRUE(Look({3, 0, kGroup}, 0, 2));
  EXPECT_EQ(standing_.calls(), 2u);
  EXPECT_TRUE(Look({3, 0, kGroup}, 0, 0));
  EXPECT_EQ(standing_.calls(), 0u);
}

TEST_F(UnreportedCallsTest, NothingStandsOfACommunicatorThatHasEnded) {
  Look({3, 0, kGroup});
  EXPECT_TRUE(Look({3, 0, kGroup}, 0, 0));
  EXPECT_EQ(standing_.calls(), 0u);
}

TEST_F(UnreportedCallsTest, WhatCouldNotBePublishedIsSaidAgain) {
  EXPECT_TRUE(Look({1, 0, kGroup}));
  standing_.Retry();
  EXPECT_TRUE(Look({1, 0, kGroup}));
  EXPECT_EQ(standing_.calls(), 1u);
}

TEST_F(UnreportedCallsTest, TheNextCommunicatorBeginsAnew) {
  unreported_.Leave({2, 0, kGroup});
  unreported_.BeginGroup(kGroup, true, 40);
  unreported_.Reset();
  EXPECT_EQ(unreported_.LeftAt(0), 0u);
  EXPECT_FALSE(unreported_.IsLastGroup({0, 0, 0}));
}

}  // namespace
}  // namespace nccl_pulse
