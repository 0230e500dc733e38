#include <algorithm>
#include <set>
#include <vector>

#include "bench/collective_overhead/schedule.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

// So linear drift cancels.
TEST(ScheduleTest, BlocksAreMirroredPermutations) {
  Schedule schedule(1);
  std::set<std::vector<int>> orders;
  for (int i = 0; i < 200; ++i) {
    std::vector<int> block = schedule.NextBlock({0, 1, 2});
    ASSERT_EQ(block.size(), 6u);
    std::vector<int> reversed(block.rbegin(), block.rend());
    EXPECT_EQ(block, reversed);
    block.resize(3);
    orders.insert(block);
    std::sort(block.begin(), block.end());
    EXPECT_EQ(block, (std::vector<int>{0, 1, 2}));
  }
  EXPECT_EQ(orders.size(), 6u);  // all permutations come
}

TEST(ScheduleTest, EveryoneIsFirstAsOftenAsOthers) {
  Schedule schedule(3);
  std::vector<int> first(4, 0);
  for (int i = 0; i < 4000; ++i) {
    ++first[static_cast<std::size_t>(schedule.Shuffle({0, 1, 2, 3}).front())];
  }
  for (const int times : first) EXPECT_NEAR(times, 1000, 120);
}

TEST(ScheduleTest, SameSeedSameOrder) {
  Schedule one(5), two(5), other(6);
  std::vector<int> first, second, third;
  for (int i = 0; i < 10; ++i) {
    for (const int member : one.NextBlock({0, 1, 2})) first.push_back(member);
    for (const int member : two.NextBlock({0, 1, 2})) second.push_back(member);
    for (const int member : other.NextBlock({0, 1, 2})) third.push_back(member);
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);
}

}  // namespace
}  // namespace nccl_pulse::overhead
