// Calls of one group are told from those of another.
#include "plugin/tracker/thread_groups.h"

#include <gtest/gtest.h>

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

// Some of the others have the same first place.
TEST(ThreadGroups, AThreadKeepsItsGroupWhileAnotherBeginsItsOwn) {
  for (uintptr_t i = 1; i < 10000; ++i) {
    ThreadGroups groups;
    const uintptr_t other = kThread + i * 0x1000;
    groups.Begin(false, kThread);
    const uint64_t group = groups.Current(kThread);
    groups.Begin(false, other);
    EXPECT_EQ(groups.Current(kThread), group);
    EXPECT_NE(groups.Current(other), 0u);
    EXPECT_NE(groups.Current(other), group);
  }
}

// Threads that have ended keep their places, until others need them.
TEST(ThreadGroups, AfterManyThreadsTheLastOnesAreKnown) {
  ThreadGroups groups;
  for (uintptr_t i = 0; i < 10000; ++i) groups.Begin(false, kThread + i * 0x1000);
  EXPECT_EQ(groups.Current(kThread), 0u);
  for (uintptr_t i = 1; i < 10000; ++i) {
    const uintptr_t other = kThread + i * 0x1000;
    for (int begun = 0; begun < 4; ++begun) {
      groups.Begin(false, kThread);
      groups.Begin(true, other);
    }
    EXPECT_NE(groups.Current(kThread), 0u);
    EXPECT_TRUE(ThreadGroups::IsOneCall(groups.Current(other)));
  }
}

}  // namespace
}  // namespace nccl_pulse
