// The window's schedule, on a clock of the test's own.
#include "plugin/runtime/network_window.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plugin/abi/common.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kMs = 1000000;
constexpr uint64_t kSecond = 1000 * kMs;
constexpr int kBit = static_cast<int>(abi::kEventProxyStep);
constexpr int kBase = static_cast<int>(abi::kEventColl | abi::kEventProxyOp | abi::kEventKernelCh);

// As NCCL's: in a library's own memory.
int g_mask = 0;
int g_other_mask = 0;

bool Allow() { return true; }
bool Refuse() { return false; }

struct Course {
  uint64_t observed_ns = 0;  // by the window
  uint64_t on_ns = 0;        // by looking at the mask
  int openings = 0;
  uint64_t longest_ns = 0;
  uint64_t shortest_pause_ns = UINT64_MAX, longest_pause_ns = 0;  // between two windows
};

// Ticks every `tick_ns` for `length_ns` of the test's time.
Course Simulate(NetworkWindow& window, uint64_t length_ns, uint64_t tick_ns) {
  Course run;
  bool was_on = false;
  uint64_t changed_ns = 0;
  for (uint64_t now_ns = kSecond; now_ns < kSecond + length_ns; now_ns += tick_ns) {
    window.Tick(now_ns, true, Allow);
    EXPECT_EQ(g_mask & ~kBit, kBase) << "no other bit";
    const bool on = (g_mask & kBit) != 0;
    if (was_on) run.on_ns += tick_ns;
    if (on != was_on) {
      const uint64_t lasted_ns = now_ns - changed_ns;
      if (!on) {
        run.longest_ns = std::max(run.longest_ns, lasted_ns);
      } else if (run.openings++ > 0) {
        run.shortest_pause_ns = std::min(run.shortest_pause_ns, lasted_ns);
        run.longest_pause_ns = std::max(run.longest_pause_ns, lasted_ns);
      }
      changed_ns = now_ns;
    }
    was_on = on;
  }
  run.observed_ns = window.observed_ns();
  return run;
}

class NetworkWindowScheduleTest : public ::testing::Test {
 protected:
  void Open(NetworkWindow& window, double percent) {
    window.Configure(percent, 12345);
    window.Write(&g_mask, static_cast<uint32_t>(kBase));
    window.Attach(1, &g_mask, static_cast<uint32_t>(kBase), kSecond);
  }
};

TEST_F(NetworkWindowScheduleTest, ShareIsKept) {
  for (const double percent : {0.5, 1.0, 10.0, 50.0}) {
    // 70 ms: a thread that comes late makes longer windows, and longer pauses.
    for (const uint64_t tick_ns : {10 * kMs, 70 * kMs}) {
      NetworkWindow window;
      Open(window, percent);
      const uint64_t length_ns = 40000 * kSecond;
      const Course run = Simulate(window, length_ns, tick_ns);
      const double share =
          100 * static_cast<double>(run.observed_ns) / static_cast<double>(length_ns);
      // A tick's length is lost at each closing and pause, which shows where pauses are short.
      EXPECT_LT(share, percent * 1.05) << percent;
      EXPECT_GT(share, percent * (percent < 20 ? 0.9 : 0.6)) << percent;
      EXPECT_EQ(run.observed_ns, run.on_ns);
      EXPECT_LE(run.longest_ns, NetworkWindow::kLengthNs + tick_ns);
      const double mean_ns = static_cast<double>(NetworkWindow::kLengthNs) * (100 / percent - 1);
      EXPECT_GE(static_cast<double>(run.shortest_pause_ns), 0.5 * mean_ns);
      EXPECT_LE(static_cast<double>(run.longest_pause_ns),
                2.2 * mean_ns + 2 * static_cast<double>(tick_ns));
      EXPECT_GT(run.longest_pause_ns, run.shortest_pause_ns) << "at random";
    }
  }
}

TEST_F(NetworkWindowScheduleTest, AlwaysSwitchesNothingAndMissesNothing) {
  NetworkWindow window;
  window.Configure(100, 1);
  window.Write(&g_mask, static_cast<uint32_t>(kBase | kBit));
  window.Attach(1, &g_mask, static_cast<uint32_t>(kBase), kSecond);
  window.Tick(2 * kSecond, false, Refuse);
  EXPECT_EQ(g_mask, kBase | kBit);
  EXPECT_EQ(window.observed_ns(), kSecond);
  window.Detach(1, 3 * kSecond);
  window.Tick(5 * kSecond, false, Refuse);
  EXPECT_EQ(window.observed_ns(), 2 * kSecond);
  EXPECT_EQ(g_mask, kBase | kBit);
}

TEST_F(NetworkWindowScheduleTest, OffTouchesNothing) {
  NetworkWindow window;
  Open(window, 0);
  EXPECT_EQ(Simulate(window, 100 * kSecond, 10 * kMs).openings, 0);
  EXPECT_EQ(window.observed_ns(), 0u);
}

TEST_F(NetworkWindowScheduleTest, AnotherShareTakesTheLastOnesPlace) {
  NetworkWindow window;
  Open(window, 1);
  uint64_t now_ns = kSecond;
  const auto watched_of = [&](uint64_t length_ns) {
    const uint64_t before_ns = window.observed_ns();
    const uint64_t end_ns = now_ns + length_ns;
    for (; now_ns < end_ns; now_ns += 10 * kMs) window.Tick(now_ns, true, Allow);
    return static_cast<double>(window.observed_ns() - before_ns) / static_cast<double>(length_ns);
  };
  watched_of(1000 * kSecond);
  ASSERT_TRUE(window.SetShare(100, now_ns));
  EXPECT_GT(watched_of(10 * kSecond), 0.99);
  EXPECT_EQ(g_mask, kBase | kBit);
  ASSERT_TRUE(window.SetShare(0, now_ns));
  EXPECT_EQ(g_mask, kBase) << "at once";
  EXPECT_EQ(watched_of(100 * kSecond), 0);
  ASSERT_TRUE(window.SetShare(1, now_ns));
  // The ten seconds are not made up for.
  EXPECT_GT(watched_of(2000 * kSecond), 0.009);
}

TEST_F(NetworkWindowScheduleTest, WhatBeganWithoutASwitchGetsNone) {
  for (const double percent : {0.0, 100.0}) {
    NetworkWindow window;
    window.Configure(percent, 1);
    EXPECT_FALSE(window.SetShare(50, kSecond));
    EXPECT_EQ(window.is_always(), percent > 0);
  }
}

TEST_F(NetworkWindowScheduleTest, WaitsForTrafficAndRoom) {
  NetworkWindow window;
  Open(window, 50);
  for (uint64_t i = 0; i < 100; ++i) {
    window.Tick(kSecond + i * 100 * kMs, false, Allow);
    EXPECT_EQ(g_mask, kBase);
  }
  for (uint64_t i = 0; i < 100; ++i) {
    window.Tick(20 * kSecond + i * 100 * kMs, true, Refuse);
    EXPECT_EQ(g_mask, kBase);
  }
  window.Tick(40 * kSecond, true, Allow);
  EXPECT_EQ(g_mask, kBase | kBit);
}

// NCCL 2.31's RAS sets a mask of its own, at any time and after each init.
TEST_F(NetworkWindowScheduleTest, WhatOthersWriteIsNotCountedAsWatched) {
  NetworkWindow window;
  Open(window, 50);
  uint64_t now_ns = 2 * kSecond;
  while ((g_mask & kBit) == 0) window.Tick(now_ns += 10 * kMs, true, Allow);
  window.Tick(now_ns += 50 * kMs, true, Allow);
  EXPECT_EQ(window.observed_ns(), 50 * kMs);
  g_mask = kBase;  // taken away
  window.Tick(now_ns += 10 * kMs, true, Allow);
  EXPECT_EQ(window.observed_ns(), 50 * kMs);
  window.Tick(now_ns += 60 * kMs, true, Allow);  // closes
  g_mask = kBase | kBit;                         // given
  window.Tick(now_ns += kMs, true, Allow);
  window.Tick(now_ns += 7 * kMs, true, Allow);
  EXPECT_EQ(window.observed_ns(), 57 * kMs);
}

// Neither closing nor opening takes from a mask what somebody else asked for.
TEST_F(NetworkWindowScheduleTest, AForeignMaskIsLeftAlone) {
  NetworkWindow window;
  Open(window, 50);
  uint64_t now_ns = 2 * kSecond;
  while ((g_mask & kBit) == 0) window.Tick(now_ns += 10 * kMs, true, Allow);
  constexpr int kForeign = kBit | static_cast<int>(abi::kEventProxyCtrl);
  for (const int foreign : {kForeign, kForeign & ~kBit}) {
    g_mask = foreign;
    for (int i = 0; i < 100; ++i) {
      window.Tick(now_ns += 10 * kMs, true, Allow);
      EXPECT_EQ(g_mask, foreign);
    }
  }
  g_mask = kBase;
  while ((g_mask & kBit) == 0) window.Tick(now_ns += 10 * kMs, true, Allow);
  while ((g_mask & kBit) != 0) window.Tick(now_ns += 10 * kMs, true, Allow);
  EXPECT_EQ(g_mask, kBase);
}

TEST_F(NetworkWindowScheduleTest, EveryMaskOfTheProcess) {
  NetworkWindow window;
  Open(window, 50);
  g_other_mask = 0;
  window.Write(&g_other_mask, static_cast<uint32_t>(kBase));
  window.Attach(2, &g_other_mask, static_cast<uint32_t>(kBase), kSecond);
  uint64_t now_ns = 2 * kSecond;
  while ((g_mask & kBit) == 0) window.Tick(now_ns += 10 * kMs, true, Allow);
  EXPECT_EQ(g_other_mask, kBase | kBit);
  int written = 0;
  window.Write(&written, static_cast<uint32_t>(kBase));
  EXPECT_EQ(written, kBase | kBit) << "as it is now";
  window.Detach(1, now_ns);
  EXPECT_EQ(g_other_mask, kBase | kBit) << "another communicator lives";
  window.Detach(2, now_ns);
  EXPECT_EQ(g_other_mask, kBase);
  window.Detach(2, now_ns);  // once more: nothing
  window.Write(nullptr, 1);
}

}  // namespace
}  // namespace nccl_pulse
