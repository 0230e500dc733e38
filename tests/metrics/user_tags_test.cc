// The user's tags as small numbers, and what a reader makes of them.
#include "metrics/user_tags.h"

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

CommunicatorSnapshot ReadFirst(TestSegment& test) {
  const ProcessSnapshot snapshot = Read(test.segment());
  return snapshot.communicators.empty() ? CommunicatorSnapshot{} : snapshot.communicators[0];
}

std::set<std::string> TagsOfCalls(const CommunicatorSnapshot& communicator) {
  std::set<std::string> tags;
  for (const CallCountSnapshot& call : communicator.calls) tags.insert(call.user_tag);
  return tags;
}

uint64_t TaggedCalls(uint32_t user_tag) {
  return SeriesKey::WithTag(SeriesKey::Calls(kAllReduceName, 2, kNoName, false), user_tag);
}

TEST(UserTags, EachHasItsNumberUntilThePlacesEnd) {
  TestSegment test;
  UserTags tags(test.segment().WritableHeader());
  EXPECT_EQ(tags.IdOf(7), 0);  // none is to be shown
  tags.SetLimit(2);
  EXPECT_EQ(tags.IdOf(0), 0);
  EXPECT_EQ(tags.IdOf(7), 1);
  EXPECT_EQ(tags.IdOf(UINT64_MAX), 2);
  EXPECT_EQ(tags.IdOf(8), kOtherUserTag);
  EXPECT_EQ(tags.IdOf(UINT64_MAX), 2);
  EXPECT_EQ(tags.IdOf(7), 1);
  EXPECT_EQ(test.segment().header().user_tags[2].load(), 0u);
}

TEST(UserTags, AsManyAsThereCanBe) {
  TestSegment test;
  UserTags tags(test.segment().WritableHeader());
  tags.SetLimit(kMaxUserTags);
  for (int tag = 1; tag <= kMaxUserTags; ++tag) EXPECT_EQ(tags.IdOf(100 + tag), tag);
  EXPECT_EQ(tags.IdOf(1), kOtherUserTag);
}

TEST(UserTags, ThreadsThatMeetAgree) {
  constexpr int kThreads = 4;
  constexpr uint64_t kTags = 32;
  for (int round = 0; round < 50; ++round) {
    TestSegment test;
    UserTags tags(test.segment().WritableHeader());
    tags.SetLimit(16);
    std::vector<std::vector<UserTagId>> ids(kThreads);
    std::vector<std::thread> threads;
    for (auto& mine : ids) {
      threads.emplace_back([&tags, &mine] {
        for (uint64_t tag = 1; tag <= kTags; ++tag) mine.push_back(tags.IdOf(tag));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& mine : ids) EXPECT_EQ(mine, ids[0]);
    EXPECT_EQ(std::count(ids[0].begin(), ids[0].end(), kOtherUserTag), 16);
    EXPECT_EQ(std::set<UserTagId>(ids[0].begin(), ids[0].end()).size(), 17u);
  }
}

TEST(UserTags, AReaderSaysTheirNumbers) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  UserTags tags(test.segment().WritableHeader());
  tags.SetLimit(1);
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    ASSERT_TRUE(lane.ok());
    for (const uint64_t tag : {0, 41, 42}) lane.Count(TaggedCalls(tags.IdOf(tag)), 1, 8);
    const uint64_t latency = LatencyKey(kAllReduceName, 2, LatencyKind::kDurationStream);
    lane.Observe(SeriesKey::WithTag(latency, tags.IdOf(41)), 1000, 8, 8);
  }
  const CommunicatorSnapshot read = ReadFirst(test);
  EXPECT_EQ(TagsOfCalls(read), (std::set<std::string>{"", "41", "other"}));
  ASSERT_EQ(read.latencies.size(), 1u);
  EXPECT_EQ(read.latencies[0].user_tag, "41");
}

// The key may be seen before the tag is; and somebody else's segment may hold anything.
TEST(UserTags, ASeriesWhoseTagIsNotThereIsLeftOut) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    ASSERT_TRUE(lane.ok());
    lane.Count(TaggedCalls(1), 1, 8);
    lane.Count(TaggedCalls(kOtherUserTag), 1, 8);
    lane.Count(TaggedCalls(255), 1, 8);
  }
  EXPECT_EQ(TagsOfCalls(ReadFirst(test)), (std::set<std::string>{"other"}));
  UserTags tags(test.segment().WritableHeader());
  tags.SetLimit(1);
  tags.IdOf(41);
  EXPECT_EQ(TagsOfCalls(ReadFirst(test)), (std::set<std::string>{"41", "other"}));
}

TEST(UserTags, PastTheLimitOfSeriesTheyAreLostAndTheCallsAreNot) {
  TestSegment test(16);
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  UserTags tags(test.segment().WritableHeader());
  tags.SetLimit(kMaxUserTags);
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    ASSERT_TRUE(lane.ok());
    for (uint64_t tag = 1; tag <= 40; ++tag) lane.Count(TaggedCalls(tags.IdOf(tag)), 1, 8);
    // What is counted by its parts anyway takes no place that is kept for others.
    lane.Count(SeriesKey::Composite(kAlltoAllName, 2, false), 1, 0);
  }
  const CommunicatorSnapshot read = ReadFirst(test);
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : read.calls) calls += call.calls;
  EXPECT_EQ(calls, 40u);
  EXPECT_EQ(read.composites.size(), 0u);
  EXPECT_EQ(read.overflowed_operations, read.overflowed_calls + 1);
  EXPECT_LE(test.segment().header().series_used.load(), 16u);
}

}  // namespace
}  // namespace nccl_pulse
