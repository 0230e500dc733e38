// Since when an operation is in flight, as its children tell.
#include "plugin/tracker/inflight_operations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "plugin/tracker/operation_ring.h"
#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

class InflightOperationsTest : public ::testing::Test {
 protected:
  uint64_t Enqueue(uint64_t ns, uint8_t channels = 2) {
    const OperationMeta meta{3, 1, channels, true, 0};
    return ClaimPlace(*ring_, 0, false, {meta.Pack(), 8, ns, false});
  }
  uint64_t EnqueueWithProxy(uint64_t ns, uint8_t channels = 2) {
    const uint64_t ticket = Enqueue(ns, channels);
    uint32_t number;
    SlotOf(ticket).StartProxy(Ticket::Generation(ticket), &number);
    return ticket;
  }
  void End(uint64_t ticket) { SlotOf(ticket).StopProxy(Ticket::Generation(ticket), 0, 1); }
  OperationSlot& SlotOf(uint64_t ticket) { return ring_->slot(Ticket::Operation(ticket)); }
  uint64_t OldestNs(uint32_t record_generation = 1) {
    inflight_.Look(record_generation, *ring_, false);
    return inflight_.oldest_ns();
  }

  std::unique_ptr<OperationRing> ring_ = std::make_unique<OperationRing>();
  InflightOperations inflight_{};
};

TEST_F(InflightOperationsTest, WithoutChildrenOrChannelsThereIsNoEndToSee) {
  Enqueue(100);
  EnqueueWithProxy(200, 0);
  EXPECT_EQ(OldestNs(), 0u);
}

TEST_F(InflightOperationsTest, OneOfALaterLaunchThatEndedShowsThatAnEventIsMissing) {
  EnqueueWithProxy(100);
  const uint64_t later = EnqueueWithProxy(100 + kSecond);
  EXPECT_EQ(OldestNs(), 100u);
  End(later);
  EXPECT_EQ(OldestNs(), 0u);
}

TEST_F(InflightOperationsTest, OneWhosePlaceWasTakenStillIsTheOldest) {
  EnqueueWithProxy(100);
  EXPECT_EQ(OldestNs(), 100u);
  for (uint32_t i = 0; i < kOperationSlots; ++i) EnqueueWithProxy(200 + i);
  EXPECT_EQ(OldestNs(), 100u);
}

// It loses its place while the ring is looked at.
TEST_F(InflightOperationsTest, TheOldestIsKnownThoughOthersBeginDuringALook) {
  constexpr uint64_t kMs = 1000000;
  for (int round = 0; round < 300; ++round) {
    ring_ = std::make_unique<OperationRing>();
    End(EnqueueWithProxy(kMs));
    const auto generation = static_cast<uint32_t>(round + 1);
    const uint64_t oldest_ns = 2 * kMs;
    EnqueueWithProxy(oldest_ns);
    ASSERT_EQ(OldestNs(generation), oldest_ns);
    std::atomic<bool> done{false};
    std::thread launching([&] {
      for (uint64_t i = 1; i <= 2 * kOperationSlots; ++i) EnqueueWithProxy(oldest_ns + i);
      done = true;
    });
    uint64_t found_ns = oldest_ns;
    while (!done && found_ns == oldest_ns) found_ns = OldestNs(generation);
    launching.join();
    ASSERT_EQ(found_ns, oldest_ns) << round;
    ASSERT_EQ(OldestNs(generation), oldest_ns) << round;
  }
}

}  // namespace
}  // namespace nccl_pulse
