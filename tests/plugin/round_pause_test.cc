#include <gtest/gtest.h>

#include "plugin/runtime/unix_time.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kMillisecond = 1000000;
constexpr int64_t kNow = int64_t{1795000000} * 1000 * kMillisecond;

TEST(RoundPauseTest, RoundsOfAllProcessesBeginTogether) {
  for (const int64_t late_ns : {int64_t{0}, int64_t{1}, int64_t{60000}, 14 * kMillisecond}) {
    EXPECT_EQ((kNow + late_ns + RoundPauseNs(kNow + late_ns, 20)) % (20 * kMillisecond), 0)
        << late_ns;
    EXPECT_EQ(RoundPauseNs(kNow + late_ns, 20), 20 * kMillisecond - late_ns);
  }
  // Idle ones begin theirs with those of the others.
  EXPECT_EQ(
      (kNow + 3 * kMillisecond + RoundPauseNs(kNow + 3 * kMillisecond, 100)) % (20 * kMillisecond),
      0);
}

// A thread that woke a little early does not make the same round twice, and a long round is
// followed by a pause.
TEST(RoundPauseTest, ThereIsAPauseBetweenTwoRounds) {
  EXPECT_EQ(RoundPauseNs(kNow - 1, 20), 20 * kMillisecond + 1);
  EXPECT_EQ(RoundPauseNs(kNow + 16 * kMillisecond, 20), 24 * kMillisecond);
  EXPECT_EQ(RoundPauseNs(kNow + 15 * kMillisecond, 20), 5 * kMillisecond);
  for (int64_t ns = -25 * kMillisecond; ns < 25 * kMillisecond; ns += 12345) {
    EXPECT_GE(RoundPauseNs(kNow + ns, 20), 5 * kMillisecond);
    EXPECT_LE(RoundPauseNs(kNow + ns, 20), 25 * kMillisecond);
  }
}

}  // namespace
}  // namespace nccl_pulse
