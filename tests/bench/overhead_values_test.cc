#include <vector>

#include "bench/collective_overhead/values.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

// By the definition of each operation, for every rank of a communicator of three.
TEST(ValuesTest, ExpectedResults) {
  constexpr uint64_t kCount = 100;
  constexpr int kRanks = 3;
  const auto all = [](Operation operation, int rank) {
    std::vector<float> values;
    for (const Segment& segment : Expected(operation, kCount, rank, kRanks)) {
      for (uint64_t i = 0; i < segment.count; ++i) {
        values.push_back(segment.period[i % kValuePeriod]);
      }
    }
    EXPECT_EQ(values.size(), ReceiveCount(operation, kCount, kRanks));
    return values;
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto mine = static_cast<uint64_t>(rank);
    for (uint64_t i = 0; i < kCount; ++i) {
      const uint64_t kept = mine * kCount + i;
      EXPECT_EQ(all(Operation::kAllReduce, rank)[i], ValueOf(i, 0) + ValueOf(i, 1) + ValueOf(i, 2));
      EXPECT_EQ(all(Operation::kReduceScatter, rank)[i],
                ValueOf(kept, 0) + ValueOf(kept, 1) + ValueOf(kept, 2));
      EXPECT_EQ(all(Operation::kBroadcast, rank)[i], ValueOf(i, 0));
      EXPECT_EQ(all(Operation::kSendRecv, rank)[i], ValueOf(i, (rank + 2) % 3));
      for (int from = 0; from < kRanks; ++from) {
        const uint64_t at = static_cast<uint64_t>(from) * kCount + i;
        EXPECT_EQ(all(Operation::kAllGather, rank)[at], ValueOf(i, from));
        EXPECT_EQ(all(Operation::kAllToAll, rank)[at], ValueOf(kept, from));
      }
    }
  }
}

TEST(ValuesTest, NeverZero) {
  for (uint64_t i = 0; i < 200; ++i) EXPECT_GE(ValueOf(i, 5), 1);
}

}  // namespace
}  // namespace nccl_pulse::overhead
