#include "plugin/runtime/round_pause.h"

#include <gtest/gtest.h>

namespace nccl_pulse {
namespace {

constexpr int64_t kMs = 1000000;
constexpr int64_t kNow = int64_t{1795000000} * 1000 * kMs;

TEST(RoundPauseTest, RoundsOfAllProcessesBeginTogether) {
  for (const int64_t late_ns : {int64_t{0}, int64_t{1}, int64_t{60000}, 14 * kMs}) {
    EXPECT_EQ((kNow + late_ns + RoundPauseNs(kNow + late_ns, 20)) % (20 * kMs), 0) << late_ns;
    EXPECT_EQ(RoundPauseNs(kNow + late_ns, 20), 20 * kMs - late_ns);
  }
  // Idle ones begin theirs with those of the others.
  EXPECT_EQ((kNow + 3 * kMs + RoundPauseNs(kNow + 3 * kMs, 100)) % (20 * kMs), 0);
}

// A thread that woke a little early does not make the same round twice, and a long round is
// followed by a pause.
TEST(RoundPauseTest, ThereIsAPauseBetweenTwoRounds) {
  EXPECT_EQ(RoundPauseNs(kNow - 1, 20), 20 * kMs + 1);
  EXPECT_EQ(RoundPauseNs(kNow + 16 * kMs, 20), 24 * kMs);
  EXPECT_EQ(RoundPauseNs(kNow + 15 * kMs, 20), 5 * kMs);
  for (int64_t ns = -25 * kMs; ns < 25 * kMs; ns += 12345) {
    EXPECT_GE(RoundPauseNs(kNow + ns, 20), 5 * kMs);
    EXPECT_LE(RoundPauseNs(kNow + ns, 20), 25 * kMs);
  }
}

}  // namespace
}  // namespace nccl_pulse
