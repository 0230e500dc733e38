// Tests of the state that the next communicator in a place inherits.
#include "plugin/tracker/communicator_table.h"

#include <gtest/gtest.h>

#include "metrics/testing/test_segment.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/instruments.h"
#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

TEST(CommunicatorTable, OperationsThatWereLeftOpenAreNotTheNextOnes) {
  TestSegment segment;
  Clock clock;
  clock.FreezeAt(1000 * kSecond);
  Instruments instruments(segment.segment(), clock, TimingMode::kAuto, nullptr, 4711, 77,
                          Sampler::kTimedPerSecond);
  CommunicatorTable table(instruments);
  const auto add = [&table](uint64_t comm_id) {
    return table.Add({comm_id, "test", 0, 8, 1, "", "", "", 0, 7, 0}, true);
  };
  Communicator* communicator = table.Close(add(1));
  ASSERT_NE(communicator, nullptr);
  OperationRing& ring = communicator->parts.load()->ring;
  table.Finish(*communicator);
  // Its callback began before the end.
  const OperationMeta meta{3, 1, 2, true, 0};
  const uint64_t late =
      ClaimPlace(ring, communicator->first_ticket, false, {meta.Pack(), 8, 0, false});
  clock.FreezeAt(clock.NowNs() + 601 * kSecond);
  ASSERT_EQ(Ticket::Communicator(add(2)), communicator->index);
  EXPECT_FALSE(ring.slot(Ticket::Operation(late)).IsOpen(Ticket::Generation(late)));
}

}  // namespace
}  // namespace nccl_pulse
