// Places of one communicator's operations: writers at work, late stops, visits, and the next communicator.
#include "plugin/tracker/operation_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kFirstTicket = Ticket::Pack(77, TicketKind::kOperation, 0, 0, 0, 5);

class OperationRingTest : public ::testing::Test {
 protected:
  // Returns the ticket.
  uint64_t Claim() {
    const OperationMeta meta{3, 1, 2, true, 9};
    return ClaimPlace(*ring_, kFirstTicket, false, {meta.Pack(), 8, kEnqueueNs, false});
  }
  OperationSlot& SlotOf(uint64_t ticket) { return ring_->slot(Ticket::Operation(ticket)); }
  Refusal StartProxy(uint64_t ticket) {
    uint32_t number;
    return SlotOf(ticket).StartProxy(Ticket::Generation(ticket), &number);
  }
  Refusal StopProxy(uint64_t ticket, uint32_t number, uint64_t ns = kEnqueueNs) {
    return SlotOf(ticket).StopProxy(Ticket::Generation(ticket), number, ns);
  }

  static constexpr uint64_t kEnqueueNs = 1000;
  std::unique_ptr<OperationRing> ring_ = std::make_unique<OperationRing>();
};

TEST_F(OperationRingTest, APlaceThatIsBeingWrittenIsLeftAlone) {
  uint64_t claimed;
  ASSERT_TRUE(ring_->slot(0).ClaimUnused(&claimed));  // and its claimer is taken off the CPU
  EXPECT_EQ(Claim(), 0u);
  EXPECT_NE(Claim(), 0u);
  OperationState state;
  EXPECT_FALSE(ring_->slot(0).Look(&state));
}

TEST_F(OperationRingTest, TheLatestStopIsKept) {
  const uint64_t ticket = Claim();
  StartProxy(ticket);
  StartProxy(ticket);
  StopProxy(ticket, 0, kEnqueueNs + 700);
  StopProxy(ticket, 1, kEnqueueNs + 300);  // another thread, which read its clock before
  const OperationState state = SlotOf(ticket).Read();
  EXPECT_EQ(LastStop::DeltaNs(state.last_stop), 700u);
  EXPECT_EQ(LastStop::Tag(state.last_stop), LastStop::TagOf(state.generation()));
}

TEST_F(OperationRingTest, OnlyWhatIsNotSettledIsVisitedAgain) {
  for (int i = 0; i < 4; ++i) Claim();
  std::vector<uint32_t> visited;
  const auto visit = [&](uint32_t place) {
    visited.push_back(place);
    return place != 1;
  };
  EXPECT_TRUE(ring_->VisitOpen(visit));
  EXPECT_EQ(visited, (std::vector<uint32_t>{0, 1, 2, 3}));
  visited.clear();
  EXPECT_TRUE(ring_->VisitOpen(visit));
  EXPECT_EQ(visited, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_FALSE(ring_->VisitOpen([](uint32_t) { return true; }));
}

// The launching thread is taken off the CPU between its two steps.
TEST_F(OperationRingTest, ANumberWithoutASlotIsVisitedAgain) {
  Claim();
  const uint64_t number = ring_->TakeNumber();
  std::vector<uint32_t> visited;
  const auto visit = [&](uint32_t place) {
    visited.push_back(place);
    return true;
  };
  EXPECT_FALSE(ring_->VisitOpen(visit));
  visited.clear();
  const auto claim_used = [](uint32_t, uint64_t*) { return false; };
  EXPECT_NE(ring_->Claim(number, kFirstTicket, false, {}, claim_used), 0u);
  EXPECT_FALSE(ring_->VisitOpen(visit));
  EXPECT_EQ(visited, (std::vector<uint32_t>{1}));
}

TEST_F(OperationRingTest, TheNextCommunicatorBeginsBehindTheLastOnes) {
  const uint64_t left = Claim();
  Claim();
  ring_->Reset();
  EXPECT_EQ(ring_->begin(ring_->end()), 2u);
  EXPECT_FALSE(ring_->VisitOpen([](uint32_t) { return false; }));  // there are none
  ring_->Abandon();
  EXPECT_FALSE(SlotOf(left).IsOpen(Ticket::Generation(left)));
  Claim();
  EXPECT_EQ(ring_->end(), 3u);
}

}  // namespace
}  // namespace nccl_pulse
