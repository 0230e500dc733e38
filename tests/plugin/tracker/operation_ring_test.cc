// Operations of one communicator: places, generations, children, and who settles.
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
  uint64_t Claim(uint64_t bytes = 8, bool by_kernel = false) {
    const OperationMeta meta{3, 1, 2, true, 9};
    return ClaimPlace(*ring_, kFirstTicket, by_kernel, {meta.Pack(), bytes, kEnqueueNs, false},
                      [this](uint32_t place, const OperationState& state) {
                        places_.push_back(place);
                        settled_.push_back(state);
                      });
  }
  OperationSlot& SlotOf(uint64_t ticket) { return ring_->slot(Ticket::Operation(ticket)); }
  Refusal StartProxy(uint64_t ticket, uint32_t* number) {
    return SlotOf(ticket).StartProxy(Ticket::Generation(ticket), number);
  }
  Refusal StartProxy(uint64_t ticket) {
    uint32_t number;
    return StartProxy(ticket, &number);
  }
  Refusal StopProxy(uint64_t ticket, uint32_t number, uint64_t ns = kEnqueueNs) {
    return SlotOf(ticket).StopProxy(Ticket::Generation(ticket), number, ns);
  }
  void FillWithOthers() {
    for (uint32_t i = 0; i < kOperationSlots - 1; ++i) Claim();
  }

  static constexpr uint64_t kEnqueueNs = 1000;
  std::unique_ptr<OperationRing> ring_ = std::make_unique<OperationRing>();
  std::vector<uint32_t> places_;
  std::vector<OperationState> settled_;
};

TEST_F(OperationRingTest, TicketNamesPlaceAndGeneration) {
  const uint64_t first = Claim();
  EXPECT_EQ(Ticket::Operation(first), 0u);
  EXPECT_EQ(Ticket::Generation(first), 1u);
  EXPECT_EQ(Ticket::Communicator(first), 5u);
  FillWithOthers();
  const uint64_t next = Claim();
  EXPECT_EQ(Ticket::Operation(next), 0u);
  EXPECT_EQ(Ticket::Generation(next), 2u);
}

TEST_F(OperationRingTest, OnlyTheNewestIsStoppedWithoutItsSlot) {
  const uint64_t first = Claim();
  const uint64_t second = Claim();
  EXPECT_FALSE(ring_->StopNewest(first));
  EXPECT_TRUE(ring_->StopNewest(second));
  EXPECT_FALSE(ring_->StopNewest(second));
  bool is_open = false;
  // The first was expected to stop when the second came; the second was stopped above.
  EXPECT_EQ(SlotOf(first).StopEnqueue(Ticket::Generation(first), &is_open), std::nullopt);
  EXPECT_TRUE(is_open);
  EXPECT_EQ(SlotOf(first).StopEnqueue(Ticket::Generation(first), &is_open),
            IgnoredReason::kRepeatedStop);
  EXPECT_EQ(SlotOf(second).StopEnqueue(Ticket::Generation(second), &is_open),
            IgnoredReason::kRepeatedStop);
}

TEST_F(OperationRingTest, WhoseChildrenCameIsSettledWhenItsPlaceIsNeeded) {
  const uint64_t first = Claim(4096);
  EXPECT_EQ(StartProxy(first), std::nullopt);
  FillWithOthers();
  EXPECT_TRUE(settled_.empty());
  Claim();
  ASSERT_EQ(settled_.size(), 1u);
  EXPECT_EQ(places_[0], 0u);
  EXPECT_EQ(settled_[0].bytes, 4096u);
  EXPECT_EQ(settled_[0].generation(), 1u);
  EXPECT_EQ(settled_[0].started(), 1u);
  EXPECT_EQ(settled_[0].stopped(), 0u);
  EXPECT_EQ(settled_[0].meta.call_number, 9u);
}

TEST_F(OperationRingTest, WithoutChildrenItIsSettledOnlyWhereGpuTimesWereExpected) {
  Claim();
  FillWithOthers();
  Claim(8, false);
  EXPECT_TRUE(settled_.empty());
  Claim(8, true);
  EXPECT_EQ(settled_.size(), 1u);
}

TEST_F(OperationRingTest, APlaceThatIsBeingWrittenIsLeftAlone) {
  uint64_t claimed;
  ASSERT_TRUE(ring_->slot(0).ClaimUnused(&claimed));  // and its claimer is taken off the CPU
  EXPECT_EQ(Claim(), 0u);
  EXPECT_NE(Claim(), 0u);
  OperationState state;
  EXPECT_FALSE(ring_->slot(0).Look(&state));
}

TEST_F(OperationRingTest, ProxiesStopAfterTheirStartAndOnce) {
  const uint64_t ticket = Claim();
  uint32_t number = 99;
  EXPECT_EQ(StopProxy(ticket, 0), IgnoredReason::kStopWithoutStart);
  EXPECT_EQ(StartProxy(ticket, &number), std::nullopt);
  EXPECT_EQ(number, 0u);
  EXPECT_EQ(StartProxy(ticket, &number), std::nullopt);
  EXPECT_EQ(number, 1u);
  EXPECT_EQ(StopProxy(ticket, 2), IgnoredReason::kStopWithoutStart);
  EXPECT_EQ(StopProxy(ticket, 1), std::nullopt);
  EXPECT_EQ(StopProxy(ticket, 1), IgnoredReason::kRepeatedStop);
  EXPECT_EQ(SlotOf(ticket).Read().stopped(), 1u);
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

TEST_F(OperationRingTest, AChildOfAnOldOperationTouchesNothingOfTheNextOne) {
  const uint64_t old = Claim();
  StartProxy(old);
  FillWithOthers();
  const uint64_t next = Claim();
  EXPECT_EQ(StartProxy(old), IgnoredReason::kStaleHandle);
  EXPECT_EQ(StopProxy(old, 0), IgnoredReason::kStaleHandle);
  EXPECT_EQ(SlotOf(old).Check(Ticket::Generation(old)), IgnoredReason::kStaleHandle);
  EXPECT_EQ(SlotOf(next).Read().started(), 0u);
}

TEST_F(OperationRingTest, ClosedOnce) {
  const uint64_t ticket = Claim();
  Claim();
  int closed = 0;
  const auto count = [&](uint32_t, const OperationState&) { ++closed; };
  ring_->CloseAll(count);
  EXPECT_EQ(closed, 2);
  ring_->CloseAll(count);
  EXPECT_EQ(closed, 2);
  EXPECT_EQ(StartProxy(ticket), IgnoredReason::kAfterClose);
}

TEST_F(OperationRingTest, WhoActedOnItSinceKeepsItOpen) {
  const uint64_t ticket = Claim();
  const OperationState before = SlotOf(ticket).Read();
  StartProxy(ticket);
  EXPECT_FALSE(SlotOf(ticket).CloseIf(before));
  EXPECT_TRUE(SlotOf(ticket).IsOpen(Ticket::Generation(ticket)));
  EXPECT_TRUE(SlotOf(ticket).CloseIf(SlotOf(ticket).Read()));
  EXPECT_FALSE(SlotOf(ticket).IsOpen(Ticket::Generation(ticket)));
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

TEST_F(OperationRingTest, TheKernelsEndIsTheOperationsWhereNothingGoesOverTheNetwork) {
  const uint64_t local = Claim();
  const uint64_t remote = Claim();
  StartProxy(remote);
  OperationState state;
  bool ends_it = false;
  EXPECT_EQ(SlotOf(local).FinishKernel(Ticket::Generation(local), &state, &ends_it), std::nullopt);
  EXPECT_TRUE(ends_it);
  EXPECT_FALSE(SlotOf(local).IsOpen(Ticket::Generation(local)));
  EXPECT_EQ(SlotOf(remote).FinishKernel(Ticket::Generation(remote), &state, &ends_it),
            std::nullopt);
  EXPECT_FALSE(ends_it);
  EXPECT_TRUE(SlotOf(remote).IsOpen(Ticket::Generation(remote)));
}

}  // namespace
}  // namespace nccl_pulse
