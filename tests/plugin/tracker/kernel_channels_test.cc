// GPU times of channels that contradict each other, and events out of order.
#include "plugin/tracker/kernel_channels.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

class KernelChannelsTest : public ::testing::Test {
 protected:
  void Begin(uint8_t channels) {
    const OperationMeta meta{3, 1, channels, false, 0};
    ticket_ = ClaimPlace(*ring_, 0, true, {meta.Pack(), 8, 0, false});
  }
  uint32_t place() const { return Ticket::Operation(ticket_); }
  KernelChannels::Channel Channel(uint32_t number) const {
    return {place(), Ticket::Generation(ticket_), number};
  }
  OperationSlot& slot() { return ring_->slot(place()); }
  Refusal Start(uint32_t number, uint64_t ns) {
    return channels_->Start(Channel(number), ns, slot());
  }
  Refusal RecordStop(uint32_t number, uint64_t ns) {
    return channels_->RecordStop(Channel(number), ns, slot());
  }
  Refusal Stop(uint32_t number) { return channels_->Stop(Channel(number), slot(), &all_stopped_); }
  // Two channels, from and to.
  KernelChannels::Verdict Run(uint64_t start0, uint64_t start1, uint64_t stop0, uint64_t stop1) {
    Begin(2);
    Start(0, start0);
    Start(1, start1);
    RecordStop(0, stop0);
    RecordStop(1, stop1);
    Stop(0);
    Stop(1);
    return channels_->Judge(place());
  }

  std::unique_ptr<OperationRing> ring_ = std::make_unique<OperationRing>();
  std::unique_ptr<KernelChannels> channels_ = std::make_unique<KernelChannels>();
  uint64_t ticket_ = 0;
  bool all_stopped_ = false;
};

TEST_F(KernelChannelsTest, AllChannelsOfAnOperationRunAtTheSameTime) {
  EXPECT_EQ(Run(100, 301, 300, 400).untimed, UntimedReason::kOverlap);
  EXPECT_EQ(Run(500, 500, 499, 600).untimed, UntimedReason::kOverlap);  // stopped before its start
}

TEST_F(KernelChannelsTest, AChannelsTimeRunsForwards) {
  EXPECT_EQ(Run(1000, 1000, 2000, 2000).untimed, std::nullopt);
  EXPECT_EQ(Run(999, 2500, 3000, 3000).untimed, UntimedReason::kBackwards);
  // One timestamp from the past condemns its own operation alone.
  EXPECT_EQ(Run(3000, 3000, 4000, 4000).untimed, std::nullopt);
  // One from the future condemns the next alone.
  EXPECT_EQ(Run(90000, 90000, 91000, 91000).untimed, std::nullopt);
  EXPECT_EQ(Run(5000, 5000, 6000, 6000).untimed, UntimedReason::kBackwards);
  EXPECT_EQ(Run(7000, 7000, 8000, 8000).untimed, std::nullopt);
}

TEST_F(KernelChannelsTest, EventsOutOfTheirOrderAreRefused) {
  Begin(2);
  EXPECT_EQ(RecordStop(0, 100), IgnoredReason::kStaleHandle);  // nothing of it has started
  Start(0, 100);
  EXPECT_EQ(RecordStop(1, 200), IgnoredReason::kStopWithoutStart);
  EXPECT_EQ(Stop(1), IgnoredReason::kStopWithoutStart);
  EXPECT_EQ(RecordStop(0, 200), std::nullopt);
  EXPECT_EQ(RecordStop(0, 201), IgnoredReason::kRepeatedStop);
  EXPECT_EQ(Stop(0), std::nullopt);
  EXPECT_EQ(Stop(0), IgnoredReason::kRepeatedStop);
  EXPECT_EQ(RecordStop(0, 202), IgnoredReason::kRepeatedStop);
}

TEST_F(KernelChannelsTest, TheNextCommunicatorsClocksBeginAnew) {
  Run(5000, 5000, 6000, 6000);
  channels_->Reset();
  EXPECT_EQ(Run(100, 100, 200, 200).untimed, std::nullopt);
}

}  // namespace
}  // namespace nccl_pulse
