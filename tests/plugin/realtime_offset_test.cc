#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "plugin/runtime/unix_time.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kMs = 1000000;
constexpr int64_t kOffsetNs = int64_t{1795000000} * 1000 * kMs;

// Clocks whose reads take the thread away for a while: so long before each read, the last one for
// all that follow.
class Clocks {
 public:
  explicit Clocks(std::vector<int64_t> away_ns) : away_ns_(std::move(away_ns)) {}
  int64_t Offset() {
    return RealtimeOffsetNs([this] { return Read(); }, [this] { return kOffsetNs + Read(); });
  }
  size_t reads() const { return reads_; }

 private:
  int64_t Read() {
    now_ns_ += away_ns_[std::min(reads_++, away_ns_.size() - 1)];
    return now_ns_;
  }

  std::vector<int64_t> away_ns_;
  size_t reads_ = 0;
  int64_t now_ns_ = 1000 * kMs;
};

TEST(RealtimeOffsetTest, OnATimeThatIsUndisturbedTheClocksAreReadOnce) {
  Clocks clocks({30});
  EXPECT_EQ(clocks.Offset(), kOffsetNs);
  EXPECT_EQ(clocks.reads(), 3u);
}

TEST(RealtimeOffsetTest, AThreadThatWasAwayBetweenTheReadsReadsAgain) {
  Clocks before({30, 480 * kMs, 30});
  EXPECT_NEAR(static_cast<double>(before.Offset() - kOffsetNs), 0, 100);
  EXPECT_EQ(before.reads(), 6u);
  Clocks behind({30, 30, 480 * kMs, 30});
  EXPECT_NEAR(static_cast<double>(behind.Offset() - kOffsetNs), 0, 100);
}

TEST(RealtimeOffsetTest, WhereItIsAlwaysAwayTheClosestReadsCount) {
  Clocks clocks({30, 480 * kMs, 30,  //
                 30, 2 * kMs, 30,    //
                 30, 480 * kMs, 480 * kMs});
  EXPECT_NEAR(static_cast<double>(clocks.Offset() - kOffsetNs), 0, 1.1 * kMs);
  EXPECT_EQ(clocks.reads(), 24u);
}

}  // namespace
}  // namespace nccl_pulse
