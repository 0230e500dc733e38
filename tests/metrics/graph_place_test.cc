// What two words of a record say of a communicator's graphs.
#include "metrics/graph_place.h"

#include <gtest/gtest.h>

namespace nccl_pulse {
namespace {

GraphPlace Again(const GraphPlace& place) {
  return GraphPlace::Of(place.PackCaptures(), place.PackCalls());
}

TEST(GraphPlace, IsReadAsItWasWritten) {
  const GraphPlace place = Again({1, 2, 3, 4, 5, 6, 7, 8, true});
  EXPECT_EQ(place.captures, 1u);
  EXPECT_EQ(place.followed, 2u);
  EXPECT_EQ(place.graph, 3u);
  EXPECT_EQ(place.passed, 4u);
  EXPECT_EQ(place.stamps, 5u);
  EXPECT_EQ(place.calls_before, 6u);
  EXPECT_EQ(place.calls_until, 7u);
  EXPECT_EQ(place.calls, 8u);
  EXPECT_TRUE(place.has_head);
  EXPECT_FALSE(Again({}).has_head);
}

TEST(GraphPlace, SaysTheMostThereIsOfMore) {
  constexpr uint32_t kMany = 1u << 30;
  const GraphPlace place = Again({kMany, kMany, 1, 1, 1, kMany, kMany, kMany, false});
  EXPECT_EQ(place.captures, GraphPlace::kMost);
  EXPECT_EQ(place.followed, GraphPlace::kMost);
  EXPECT_EQ(place.graph, 1u);
  EXPECT_EQ(place.calls_before, GraphPlace::kMostCalls);
  EXPECT_EQ(place.calls_until, GraphPlace::kMostCalls);
  EXPECT_EQ(place.calls, GraphPlace::kMostCalls);
  EXPECT_FALSE(place.has_head);
}

}  // namespace
}  // namespace nccl_pulse
