// Calls of one group are told from those of another.
#include "plugin/tracker/thread_groups.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_pulse {
namespace {

constexpr uintptr_t kThread = 0x7f0000001000;

TEST(ThreadGroups, EachGroupOfAThreadIsAnother) {
  ThreadGroups groups;
  groups.Begin(false, kThread);
  const uint64_t first = groups.Current(kThread);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(groups.Current(kThread), first);
  groups.Begin(false, kThread);
  EXPECT_NE(groups.Current(kThread), first);
}

TEST(ThreadGroups, AThreadThatBeganNoneIsNotKnown) {
  const ThreadGroups groups;
  EXPECT_EQ(groups.Current(kThread), 0u);
}

TEST(ThreadGroups, TheCallingThreadIsMeantUnlessAnotherIsNamed) {
  ThreadGroups groups;
  groups.Begin(false);
  EXPECT_EQ(groups.Current(), groups.Current(ThreadGroups::ThisThread()));
  EXPECT_NE(groups.Current(), 0u);
}

TEST(ThreadGroups, WhatItIsIsToldWithTheGroup) {
  ThreadGroups groups;
  groups.Begin(true, kThread);
  const uint64_t call = groups.Current(kThread);
  EXPECT_TRUE(ThreadGroups::IsOneCall(call));
  groups.Begin(false, kThread);
  EXPECT_FALSE(ThreadGroups::IsOneCall(groups.Current(kThread)));
  groups.Begin(true, kThread);
  EXPECT_TRUE(ThreadGroups::IsOneCall(groups.Current(kThread)));
  EXPECT_NE(groups.Current(kThread), call);
  EXPECT_FALSE(ThreadGroups::IsOneCall(groups.Current(kThread + 0x1000)));  // not known
}

TEST(ThreadGroups, WhenTwoThreadsMeetTheEarlierIsToldNothing) {
  uintptr_t other = kThread;
  bool met = false;
  for (int i = 0; i < 100000 && !met; ++i) {
    ThreadGroups groups;
    other += 0x1000;
    groups.Begin(false, kThread);
    groups.Begin(false, other);
    met = groups.Current(kThread) == 0;
    EXPECT_NE(groups.Current(other), 0u);
    if (!met) {
      EXPECT_NE(groups.Current(kThread), groups.Current(other));
    }
  }
  EXPECT_TRUE(met);
}

}  // namespace
}  // namespace nccl_pulse
