// Calls of one group are told from those of another.
#include "plugin/tracker/thread_groups.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_pulse {
namespace {

constexpr uintptr_t kThread = 0x7f0000001000;

TEST(ThreadGroups, EachGroupOfAThreadIsAnother) {
  ThreadGroups groups;
  groups.Begin(kThread);
  const uint64_t first = groups.Current(kThread);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(groups.Current(kThread), first);
  groups.Begin(kThread);
  EXPECT_NE(groups.Current(kThread), first);
}

TEST(ThreadGroups, AThreadThatBeganNoneIsNotKnown) {
  const ThreadGroups groups;
  EXPECT_EQ(groups.Current(kThread), 0u);
}

TEST(ThreadGroups, TheCallingThreadIsMeantUnlessAnotherIsNamed) {
  ThreadGroups groups;
  groups.Begin();
  EXPECT_EQ(groups.Current(), groups.Current(ThreadGroups::ThisThread()));
  EXPECT_NE(groups.Current(), 0u);
}

TEST(ThreadGroups, WhenTwoThreadsMeetTheEarlierIsToldNothing) {
  uintptr_t other = kThread;
  bool met = false;
  for (int i = 0; i < 100000 && !met; ++i) {
    ThreadGroups groups;
    other += 0x1000;
    groups.Begin(kThread);
    groups.Begin(other);
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
