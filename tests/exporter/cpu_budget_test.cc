#include "exporter/base/cpu_budget.h"

#include <gtest/gtest.h>

#include <chrono>

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = CpuBudget::Time;

const Time kStart{seconds(1000)};

TEST(CpuBudget, IsFullAtFirstAndNeverMoreThanFull) {
  CpuBudget budget(0.02, seconds(10), kStart);
  const Time later = kStart + seconds(3600);
  budget.Spend(milliseconds(199), later);
  EXPECT_TRUE(budget.Allows(later));
  budget.Spend(milliseconds(1), later);
  EXPECT_FALSE(budget.Allows(later));
}

TEST(CpuBudget, SaysFromWhenOnItAllowsMore) {
  CpuBudget budget(0.02, seconds(10), kStart);
  EXPECT_LE(budget.allows_from(), kStart);
  budget.Spend(milliseconds(240), kStart);  // 40 ms too much: two seconds' worth
  EXPECT_FALSE(budget.Allows(kStart + milliseconds(1999)));
  EXPECT_GE(budget.allows_from(), kStart + seconds(2));
  EXPECT_LE(budget.allows_from(), kStart + milliseconds(2001));
  EXPECT_TRUE(budget.Allows(budget.allows_from()));
}

// Whoever asks all the time gets the share, the burst, and one piece of work.
TEST(CpuBudget, OverAnyTimeNoMoreIsSpentThanTheShareAndTheBurst) {
  for (const milliseconds work : {milliseconds(1), milliseconds(7), milliseconds(500)}) {
    CpuBudget budget(0.02, seconds(10), kStart);
    milliseconds spent{0};
    for (Time now = kStart; now < kStart + seconds(600); now += milliseconds(1)) {
      if (!budget.Allows(now)) continue;
      spent += work;
      budget.Spend(work, now);
    }
    EXPECT_LE(spent, milliseconds(12200) + work);
    EXPECT_GE(spent, milliseconds(12100));
  }
}

TEST(CpuBudget, IsNotEmptyForLongerThanTheLongestPauseWhateverACostWas) {
  CpuBudget budget(0.02, seconds(10), kStart, seconds(30));
  budget.Spend(seconds(60), kStart);  // 50 minutes' worth
  EXPECT_FALSE(budget.Allows(kStart + seconds(29)));
  EXPECT_LE(budget.allows_from(), kStart + seconds(31));
  EXPECT_TRUE(budget.Allows(kStart + seconds(31)));
}

TEST(CpuBudget, AClockThatStandsStillEarnsNothing) {
  CpuBudget budget(0.5, seconds(1), kStart);
  budget.Spend(milliseconds(600), kStart);
  EXPECT_FALSE(budget.Allows(kStart));
  EXPECT_FALSE(budget.Allows(kStart - seconds(5)));
}

}  // namespace
}  // namespace nccl_pulse
