// Serials of timed launches: how many are known, and what the next communicator inherits.
#include "plugin/tracker/timed_launches.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_pulse {
namespace {

TEST(TimedLaunches, AsManySerialsAreKnownAsThereArePairs) {
  auto timed = std::make_unique<TimedLaunches>();
  for (uint32_t serial = 1; serial <= kTimedPairs; ++serial) timed->NoteTimed(serial);
  EXPECT_TRUE(timed->WasTimed(1));
  timed->NoteTimed(kTimedPairs + 1);
  EXPECT_FALSE(timed->WasTimed(1));
  EXPECT_TRUE(timed->WasTimed(2));
}

TEST(TimedLaunches, SerialsAreNeverZeroAndFitTheirTicket) {
  auto timed = std::make_unique<TimedLaunches>();
  for (uint32_t i = 0; i < Ticket::kGenerationMask; ++i) timed->NextSerial();
  EXPECT_EQ(timed->serial(), Ticket::kGenerationMask);
  EXPECT_EQ(timed->NextSerial(), 1u);
}

TEST(TimedLaunches, TheNextCommunicatorCountsAnew) {
  auto timed = std::make_unique<TimedLaunches>();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(timed->NextGrouped(7).call_number, 0u) << "set-up: never timed";
  }
  EXPECT_EQ(timed->NextGrouped(9).call_number, 9u) << "the number of the launch";
  timed->NoteTimed(5);
  timed->Reset();
  EXPECT_EQ(timed->NextGrouped(9).call_number, 0u);
  EXPECT_FALSE(timed->WasTimed(5));
}

}  // namespace
}  // namespace nccl_pulse
