// Which communicator an event belongs to, and which place the next one gets.
#include "plugin/tracker/communicator_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kSecond = 1000000000;

class CommunicatorTableTest : public ::testing::Test {
 protected:
  void Finish(uint64_t context) {
    Communicator* communicator = table_.Close(context);
    ASSERT_NE(communicator, nullptr);
    table_.Finish(*communicator);
  }
  void Pass(uint64_t ns) { process_.clock.StandAt(process_.clock.NowNs() + ns); }

  Process process_{TimingMode::kAuto, false};
  CommunicatorTable& table_ = process_.table;
};

TEST_F(CommunicatorTableTest, AContextIsValidUntilItsEnd) {
  EXPECT_NE(table_.Find(process_.context), nullptr);
  Finish(process_.context);
  EXPECT_EQ(table_.Find(process_.context), nullptr);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kStaleContext), 1u);
  EXPECT_EQ(table_.Close(process_.context), nullptr);
}

TEST_F(CommunicatorTableTest, WhatThisProcessNeverGaveOutIsForeign) {
  EXPECT_EQ(table_.Find(0), nullptr);
  EXPECT_EQ(table_.Find(Ticket::Pack(78, TicketKind::kContext, 0, 1, 0, 0)), nullptr);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kForeignContext), 2u);
}

TEST_F(CommunicatorTableTest, APlaceIsUsedAgainOnlyAfterTenMinutes) {
  Finish(process_.context);
  const uint64_t second = process_.AddCommunicator(2);
  EXPECT_NE(Ticket::Communicator(second), Ticket::Communicator(process_.context));
  Pass(601 * kSecond);
  const uint64_t third = process_.AddCommunicator(3);
  EXPECT_EQ(Ticket::Communicator(third), Ticket::Communicator(process_.context));
  EXPECT_EQ(table_.Find(process_.context), nullptr);  // of the place's communicator before
  EXPECT_NE(table_.Find(third), nullptr);
}

TEST_F(CommunicatorTableTest, AnOperationsTicketLeadsToItsSlot) {
  const OperationMeta meta{3, 1, 2, true, 0};
  const uint64_t ticket = ClaimPlace(process_.parts().ring, process_.communicator().first_ticket,
                                     false, {meta.Pack(), 8, 0, false});
  const OperationRef ref = table_.FindOperation(ticket, TicketKind::kOperation);
  EXPECT_EQ(ref.communicator, &process_.communicator());
  EXPECT_TRUE(ref.slot().IsOpen(ref.generation));
  EXPECT_EQ(table_.FindOperation(ticket, TicketKind::kProxyOp).communicator, nullptr);
  // Made up: a place that was never used, and one that no communicator has.
  for (const uint64_t bits : {Ticket::Pack(77, TicketKind::kOperation, 0, 1, 0, 9),
                              Ticket::Pack(77, TicketKind::kOperation, 0, 1, kOperationSlots, 0)}) {
    EXPECT_EQ(table_.FindOperation(bits, TicketKind::kOperation).communicator, nullptr);
  }
}

TEST_F(CommunicatorTableTest, OperationsThatWereLeftOpenAreNotTheNextOnes) {
  const OperationMeta meta{3, 1, 2, true, 0};
  Communicator& communicator = process_.communicator();
  CommunicatorParts& parts = process_.parts();
  Finish(process_.context);
  // Its callback began before the end.
  const uint64_t late =
      ClaimPlace(parts.ring, communicator.first_ticket, false, {meta.Pack(), 8, 0, false});
  Pass(601 * kSecond);
  ASSERT_NE(process_.AddCommunicator(2), 0u);
  EXPECT_FALSE(parts.ring.slot(Ticket::Operation(late)).IsOpen(Ticket::Generation(late)));
}

TEST_F(CommunicatorTableTest, AllPlacesThatWereUsedAreVisited) {
  const uint64_t second = process_.AddCommunicator(2);
  std::vector<uint32_t> places;
  for (const Communicator& communicator : table_) places.push_back(communicator.index);
  EXPECT_EQ(places, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(Ticket::Communicator(second), 1u);
}

TEST(CommunicatorTable, OneWhoseTimerIsStillInUseIsPassedOver) {
  Process process;
  process.table.Finish(*process.table.Close(process.context));
  process.clock.StandAt(process.clock.NowNs() + 601 * kSecond);
  // Nobody has destroyed the events yet.
  const uint64_t next = process.AddCommunicator(2);
  EXPECT_NE(Ticket::Communicator(next), Ticket::Communicator(process.context));
}

}  // namespace
}  // namespace nccl_pulse
