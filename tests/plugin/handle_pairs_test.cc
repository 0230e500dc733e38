#include "plugin/next/handle_pairs.h"

#include <gtest/gtest.h>

#include <memory>

namespace nccl_pulse {
namespace {

using Pairs = HandlePairs<15, 4>;

// Linux on arm64 gives 48-bit addresses, of which the highest bit is set in most.
TEST(HandlePairsTest, AddressesNeedNoPair) {
  for (const uint64_t address : {0x00007fffffffe000, 0x0000aaaac0ffee00, 0x0000ffff80001000}) {
    EXPECT_FALSE(Pairs::IsTicketOrPair(address));
  }
}

TEST(HandlePairsTest, TicketsAndPairsDifferFromAddresses) {
  EXPECT_TRUE(Pairs::IsTicketOrPair(Ticket::Pack(1, TicketKind::kContext, 0, 0, 0, 0)));
  const auto pairs = std::make_unique<Pairs>();
  pairs->Begin(1);
  const uint64_t handle = pairs->Put({2, 3, true});
  EXPECT_TRUE(Pairs::IsTicketOrPair(handle));
  HandlePair found;
  ASSERT_TRUE(pairs->Find(handle, &found));
  EXPECT_EQ(found.ours, 2u);
  EXPECT_EQ(found.next, 3u);
}

}  // namespace
}  // namespace nccl_pulse
