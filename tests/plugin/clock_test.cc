#include "plugin/tracker/clock.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {
std::atomic<time_t> g_ahead_s{0};
}

// Stands in for libc's function: the kernel's time plus `g_ahead_s`.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  now->tv_sec += g_ahead_s.load();
  return static_cast<int>(result);
}

namespace nccl_pulse {
namespace {

// As after a checkpoint is restored on another machine.
TEST(ClockTest, FollowsATimeThatWentBackBehindItsOrigin) {
  g_ahead_s = 7200;
  Clock clock;
  clock.Initialize(ClockSource::kAuto);
  g_ahead_s = 0;
  clock.Correct();
  EXPECT_LT(clock.NowNs(), Clock::MonotonicNs() + uint64_t{3600} * 1000000000);
}

}  // namespace
}  // namespace nccl_pulse
