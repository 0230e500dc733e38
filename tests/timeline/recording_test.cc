// What a recording keeps of looks: which calls, and what it believes of them.
#include "exporter/timeline/recording.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

Json Call(uint64_t number, const std::string& state = "completed") {
  return {{"number", number}, {"collective", number}, {"op", "AllReduce"}, {"state", state}};
}

Json Calls(uint64_t first, uint64_t last) {
  Json calls = Json::array();
  for (uint64_t number = first; number <= last; ++number) calls.push_back(Call(number));
  return calls;
}

Json Page(double time, int64_t rank, const Json& calls) {
  return {{"time", time},
          {"comm", "00ab12cd34ef5678"},
          {"nranks", 2},
          {"ranks", {{{"rank", rank}, {"pid", 100 + rank}, {"hostname", "a"}, {"calls", calls}}}}};
}

const SeenRank& RankOf(const JobRecording& recording, int64_t rank) {
  return recording.ranks().at({"00ab12cd34ef5678", "a", 100 + rank, rank});
}

std::vector<uint64_t> NumbersOf(const SeenRank& rank) {
  std::vector<uint64_t> numbers;
  for (const auto& [number, call] : rank.calls) numbers.push_back(number);
  return numbers;
}

TEST(RecordingTest, AtTheLimitTheNewestAreKeptAndEachIsCountedOnce) {
  JobRecording recording(4);
  recording.AddCalls(0, Page(1, 0, Calls(1, 3)), 1);
  recording.AddCalls(0, Page(2, 0, Calls(1, 6)), 2);
  EXPECT_EQ(NumbersOf(RankOf(recording, 0)), (std::vector<uint64_t>{3, 4, 5, 6}));
  EXPECT_EQ(recording.dropped(), 2U);
  recording.AddCalls(0, Page(3, 0, Calls(1, 6)), 3);
  EXPECT_EQ(recording.dropped(), 2U);
  recording.AddCalls(0, Page(4, 0, Calls(2, 7)), 4);
  EXPECT_EQ(NumbersOf(RankOf(recording, 0)), (std::vector<uint64_t>{4, 5, 6, 7}));
  EXPECT_EQ(recording.dropped(), 3U);
  EXPECT_EQ(recording.calls(), 4U);
  EXPECT_EQ(RankOf(recording, 0).LastCollective(), 7U);
}

TEST(RecordingTest, ARankThatComesLateHasItsShare) {
  JobRecording recording(4);
  recording.AddCalls(0, Page(1, 0, Calls(1, 4)), 1);
  recording.AddCalls(0, Page(2, 1, Calls(1, 4)), 2);
  EXPECT_EQ(NumbersOf(RankOf(recording, 0)), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(NumbersOf(RankOf(recording, 1)), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(recording.dropped(), 4U);
}

TEST(RecordingTest, AClockThatIsSetBackStopsNothing) {
  JobRecording recording;
  recording.AddCalls(0, Page(100, 0, Json::array({Call(1, "in_flight")})), 1);
  recording.AddCalls(0, Page(50, 0, Json::array({Call(1), Call(2, "in_flight")})), 2);
  const SeenRank& rank = RankOf(recording, 0);
  EXPECT_EQ(rank.calls.at(1).state, "completed");
  EXPECT_FALSE(rank.IsOpen(rank.calls.at(1)));
  EXPECT_TRUE(rank.IsOpen(rank.calls.at(2)));
  EXPECT_EQ(rank.looked_ns, 50'000'000'000);
  EXPECT_EQ(rank.arrived_ns, 2);
}

TEST(RecordingTest, AnOlderPageOfAnotherEndpointChangesNothing) {
  JobRecording recording;
  recording.AddCalls(0, Page(100, 0, Json::array({Call(1)})), 1);
  recording.AddCalls(1, Page(99, 0, Json::array({Call(1, "in_flight")})), 2);
  const SeenRank& rank = RankOf(recording, 0);
  EXPECT_EQ(rank.calls.at(1).state, "completed");
  EXPECT_EQ(rank.looked_ns, 100'000'000'000);
  EXPECT_EQ(rank.arrived_ns, 1);
  recording.AddCalls(0, Page(98, 0, Json::array({Call(1, "error")})), 3);
  EXPECT_EQ(rank.calls.at(1).state, "error");
}

}  // namespace
}  // namespace nccl_pulse
