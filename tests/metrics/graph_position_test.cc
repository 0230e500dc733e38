// What two words of a record say of a communicator's graphs.
#include "metrics/graph_position.h"

#include <gtest/gtest.h>

namespace nccl_pulse {
namespace {

GraphPosition Again(const GraphPosition& position) {
  return GraphPosition::Of(position.PackCaptures(), position.PackCalls());
}

TEST(GraphPosition, IsReadAsItWasWritten) {
  const GraphPosition position = Again({1, 2, 3, 4, 5, 6, 7, 8, true});
  EXPECT_EQ(position.captures, 1u);
  EXPECT_EQ(position.followed, 2u);
  EXPECT_EQ(position.graph, 3u);
  EXPECT_EQ(position.passed, 4u);
  EXPECT_EQ(position.stamps, 5u);
  EXPECT_EQ(position.calls_before, 6u);
  EXPECT_EQ(position.calls_until, 7u);
  EXPECT_EQ(position.calls, 8u);
  EXPECT_TRUE(position.has_head);
  EXPECT_FALSE(Again({}).has_head);
}

TEST(GraphPosition, SaysTheMostThereIsOfMore) {
  constexpr uint32_t kMany = 1u << 30;
  const GraphPosition position = Again({kMany, kMany, 1, 1, 1, kMany, kMany, kMany, false});
  EXPECT_EQ(position.captures, GraphPosition::kMost);
  EXPECT_EQ(position.followed, GraphPosition::kMost);
  EXPECT_EQ(position.graph, 1u);
  EXPECT_EQ(position.calls_before, GraphPosition::kMostCalls);
  EXPECT_EQ(position.calls_until, GraphPosition::kMostCalls);
  EXPECT_EQ(position.calls, GraphPosition::kMostCalls);
  EXPECT_FALSE(position.has_head);
}

TEST(GraphPosition, NumbersGraphsFromOneAgain) {
  EXPECT_EQ(Again({0, 0, GraphPosition::kMost}).graph, GraphPosition::kMost);
  EXPECT_EQ(Again({0, 0, GraphPosition::kMost + 1}).graph, 1u) << "0 is no graph";
  EXPECT_EQ(Again({0, 0, 3 * GraphPosition::kMost}).graph, GraphPosition::kMost);
  EXPECT_EQ(Again({0, 0, 0}).graph, 0u);
}

}  // namespace
}  // namespace nccl_pulse
