// Rounds of a job, what its calls take in the mean, and what is more than chance.
#include "exporter/diagnosis/stragglers/rounds.h"

#include <cstdint>
#include <vector>

#include "exporter/diagnosis/stragglers/mean_lateness.h"
#include "exporter/diagnosis/testing/simulated_job.h"
#include "gtest/gtest.h"
#include "metrics/histogram_geometry.h"

namespace nccl_pulse {
namespace {

ProcessSnapshot ProcessWith(std::vector<CallCountSnapshot> calls) {
  ProcessSnapshot process;
  process.communicators.resize(2);
  process.communicators[1].calls = std::move(calls);
  return process;
}

TEST(RoundsTest, AreCallsOfTheRarestCollective) {
  EXPECT_EQ(RoundsOf(ProcessWith({{"AllGather", 4, "ncclFloat32", false, 4800},
                                  {"AllReduce", 0, "ncclFloat32", false, 100},
                                  {"Send", 4, "ncclFloat32", false, 7}})),
            100u);
}

TEST(RoundsTest, DataTypesOfAKindAreOne) {
  EXPECT_EQ(RoundsOf(ProcessWith({{"AllReduce", 4, "ncclFloat32", false, 40},
                                  {"AllReduce", 4, "ncclBfloat16", false, 60}})),
            100u);
}

TEST(RoundsTest, WhatWasCalledToStartOrAsSeldomAsToEvaluateIsNotOfEach) {
  EXPECT_EQ(RoundsOf(ProcessWith({{"Broadcast", 4, "ncclFloat32", false, 3},
                                  {"AllReduce", 4, "ncclFloat32", false, 50}})),
            50u);
  EXPECT_EQ(RoundsOf(ProcessWith({{"AllGather", 2, "ncclFloat32", false, 9},
                                  {"AllReduce", 4, "ncclFloat32", false, 10000}})),
            10000u);
}

TEST(RoundsTest, WhatOnlyRestingCommunicatorsWereForIsOver) {
  ProcessSnapshot process = ProcessWith({{"AllReduce", 4, "ncclFloat32", false, 600}});
  process.communicators[1].last_launch_realtime_ns = 100 * kSecond;
  process.communicators[0].calls = {{"AllReduce", 4, "ncclFloat32", false, 20}};
  process.communicators[0].last_launch_realtime_ns = 71 * kSecond;
  EXPECT_EQ(RoundsOf(process), 20u);
  process.communicators[0].last_launch_realtime_ns = 69 * kSecond;
  EXPECT_EQ(RoundsOf(process), 600u);
  process.communicators[0].last_launch_realtime_ns = 0;
  EXPECT_EQ(RoundsOf(process), 20u) << "when it launched is not known";
  process.communicators[0].finalized = true;
  EXPECT_EQ(RoundsOf(process), 600u);
}

TEST(RoundsTest, AreNotKnownWithoutCollectivesThatWereCalledOften) {
  EXPECT_EQ(RoundsOf(ProcessWith({})), 0u);
  EXPECT_EQ(RoundsOf(ProcessWith({{"AllReduce", 4, "ncclFloat32", false, 3}})), 0u);
  EXPECT_EQ(RoundsOf(ProcessWith({{"Send", 4, "ncclFloat32", false, 100}})), 0u);
  EXPECT_EQ(RoundsOf(ProcessWith({{"AllReduce", 4, "ncclFloat32", true, 100}})), 0u);
}

TEST(RoundsTest, LaunchesOfSeveralCallsAreThoseWithoutCollectives) {
  CommunicatorSnapshot communicator;
  communicator.calls = {{"AllReduce", 4, "ncclFloat32", false, 30},
                        {"AllReduce", 2, "ncclFloat32", false, 20},
                        {"Send", 4, "ncclFloat32", false, 800}};
  communicator.launches = 150;
  TimedCallSnapshot kind;
  kind.op = "Grouped";
  EXPECT_EQ(CallsOfKind(communicator, kind), 100u);
  kind.op = "AllReduce";
  kind.size_class = 4;
  EXPECT_EQ(CallsOfKind(communicator, kind), 30u);
  kind.kind = LatencyKind::kDurationKernel;
  EXPECT_EQ(CallsOfKind(communicator, kind), 50u) << "NCCL numbers them whatever their sizes";
}

TEST(BeyondChanceTest, TakesMoreRoundsTheFewerRanks) {
  EXPECT_FALSE(IsBeyondChance(1, 1.0 / 8, 6, 8));
  EXPECT_TRUE(IsBeyondChance(1, 1.0 / 8, 7, 8));
  EXPECT_FALSE(IsBeyondChance(1, 1.0 / 2, 17, 2));
  EXPECT_TRUE(IsBeyondChance(1, 1.0 / 2, 18, 2));
  EXPECT_FALSE(IsBeyondChance(0.7, 1.0 / 8, 12, 8));
  EXPECT_TRUE(IsBeyondChance(0.7, 1.0 / 8, 16, 8));
}

TEST(BeyondChanceTest, NeverWithoutRoundsNorForWhatIsUsual) {
  EXPECT_FALSE(IsBeyondChance(1, 1.0 / 8, 0, 8));
  EXPECT_FALSE(IsBeyondChance(0.1, 1.0 / 8, 1e9, 8));
  EXPECT_FALSE(IsBeyondChance(1, 1, 1e9, 1));
}

LatencySnapshot Latency(const char* op, int size_class, uint64_t calls, uint64_t duration_ns) {
  LatencySnapshot latency;
  latency.kind = LatencyKind::kDurationStream;
  latency.op = op;
  latency.size_class = size_class;
  latency.histogram.cells[CellIndex(duration_ns)] = calls;
  return latency;
}

TEST(UsualDurationsTest, OneWaitOfMinutesIsNoneOfTheOthersBusiness) {
  CommunicatorSnapshot communicator;
  LatencySnapshot latency = Latency("AllReduce", 4, 99, 10 * kMs);
  latency.histogram.cells[CellIndex(60000 * kMs)] = 1;
  communicator.latencies = {latency};
  const std::vector<UsualDurationSnapshot> usual = UsualDurationsOf(communicator);
  ASSERT_EQ(usual.size(), 1u);
  EXPECT_EQ(usual[0].calls, 100u);
  EXPECT_NEAR(static_cast<double>(usual[0].ns), 1000.0 * kMs, 50.0 * kMs);
}

TEST(UsualDurationsTest, TagsAreAddedUpAndOnlyWhatWaitsForAllCounts) {
  CommunicatorSnapshot communicator;
  LatencySnapshot tagged = Latency("AllReduce", 4, 10, kMs);
  tagged.user_tag = "forward";
  LatencySnapshot waited = Latency("AllReduce", 4, 10, kMs);
  waited.kind = LatencyKind::kCompletionProxy;
  communicator.latencies = {Latency("AllReduce", 4, 10, kMs),
                            tagged,
                            waited,
                            Latency("Broadcast", 4, 10, kMs),
                            Latency("Grouped", 3, 5, kMs),
                            Latency("Grouped", 4, 6, kMs),
                            Latency("AllGather", 4, 0, kMs)};
  const std::vector<UsualDurationSnapshot> usual = UsualDurationsOf(communicator);
  ASSERT_EQ(usual.size(), 2u);
  EXPECT_EQ(usual[0].op, "AllReduce");
  EXPECT_EQ(usual[0].calls, 20u);
  EXPECT_EQ(usual[1].op, "Grouped");
  EXPECT_EQ(usual[1].size_class, -1);
  EXPECT_EQ(usual[1].calls, 11u);
}

// Ranks of one communicator, each with its own mean duration.
struct Job {
  explicit Job(const std::vector<uint64_t>& durations_ns) : processes(durations_ns.size()) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      CommunicatorSnapshot communicator;
      communicator.rank = static_cast<int32_t>(i);
      communicator.calls = {{"AllReduce", 4, "ncclFloat32", false, 100}};
      communicator.latencies = {Latency("AllReduce", 4, 100, durations_ns[i])};
      processes[i].communicators = {communicator};
    }
  }
  MeanLateness Lateness() {
    views.clear();
    for (const ProcessSnapshot& process : processes) {
      views.push_back({&process, &process.communicators[0], RankView::State::kLive, {}});
    }
    std::vector<const RankView*> ranks;
    for (const RankView& view : views) ranks.push_back(&view);
    return MeanLatenessOf(ranks, false, 100);
  }
  std::vector<ProcessSnapshot> processes;
  std::vector<RankView> views;
};

TEST(MeanLatenessTest, WhoWaitsLessThanTheOthersIsLate) {
  Job job({4 * kMs, 4 * kMs, kMs, 4 * kMs});
  const MeanLateness mean = job.Lateness();
  ASSERT_EQ(mean.of_rank.size(), 4u);
  EXPECT_NEAR(mean.of_rank[2], 2.25 * kMs, 0.15 * kMs);
  EXPECT_NEAR(mean.of_rank[0], -0.75 * kMs, 0.1 * kMs);
  EXPECT_EQ(mean.rounds, 100);
}

// An endpoint that is asked a moment later has more calls.
TEST(MeanLatenessTest, MeansAreComparedNotSums) {
  Job job({4 * kMs, 4 * kMs});
  job.processes[1].communicators[0].latencies[0].histogram.cells[CellIndex(4 * kMs)] = 110;
  EXPECT_NEAR(job.Lateness().of_rank[0], 0, 1);
}

TEST(MeanLatenessTest, NobodyIsComparedWithWhoTimesOtherwise) {
  Job job({4 * kMs, kMs});
  job.processes[1].communicators[0].latencies[0].histogram.cells[CellIndex(kMs)] = 20;
  EXPECT_TRUE(job.Lateness().of_rank.empty());
  job.processes[1].communicators[0].latencies[0].kind = LatencyKind::kDurationKernel;
  EXPECT_TRUE(job.Lateness().of_rank.empty());
}

}  // namespace
}  // namespace nccl_pulse
