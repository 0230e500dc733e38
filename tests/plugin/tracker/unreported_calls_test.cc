// Calls that NCCL holds inside a launch, and news that could not be published.
#include "plugin/tracker/unreported_calls.h"

#include <gtest/gtest.h>

#include "plugin/tracker/clock.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kGroup = 11;

class UnreportedCallsTest : public ::testing::Test {
 protected:
  UnreportedCallsTest() { clock_.FreezeAt(1000); }
  bool Look(const PendingCalls& pending, uint64_t operations = 0, uint32_t unfinished = UINT32_MAX,
            bool in_group = false, bool is_launching = false) {
    return standing_.Look(1, unfinished, unreported_, pending, operations, in_group, is_launching,
                          clock_);
  }

  Clock clock_;
  UnreportedCalls unreported_{};
  UnlaunchedCalls standing_{};
};

// CUDA_LAUNCH_BLOCKING, or a full launch queue: NCCL's thread is held in cuLaunchKernel.
TEST_F(UnreportedCallsTest, ALaunchThatLastsStandsInsideNccl) {
  const auto look = [this](uint64_t ns, uint32_t launch, bool is_launching) {
    clock_.FreezeAt(ns);
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

TEST_F(UnreportedCallsTest, WhatCouldNotBePublishedIsSaidAgain) {
  EXPECT_TRUE(Look({1, 0, kGroup}));
  standing_.Retry();
  EXPECT_TRUE(Look({1, 0, kGroup}));
  EXPECT_EQ(standing_.calls(), 1u);
}

}  // namespace
}  // namespace nccl_pulse
