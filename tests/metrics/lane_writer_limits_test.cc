// Past the limits of series and chunks: overflow, and nothing is lost.
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/lane_reading.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

TEST(LaneWriter, PastTheProcessBudgetIntoOverflow) {
  // Six, and four for overflow: two kinds of latency and two of algorithms, calls need none.
  constexpr uint64_t kLimit = 64;
  constexpr uint64_t kTaken = kLimit - SeriesForOverflow(kLimit) - 6;
  static_assert(SeriesForOverflow(kLimit) == 4);
  TestSegment test(kLimit);
  const uint32_t others = test.AddCommunicator(2, 3, 0, "others");
  {
    LaneWriter lane = test.Writer(2, others, LaneRole::kLaunch);
    for (uint32_t i = 0; i < kTaken; ++i) lane.Count(CallsKey(kAllGatherName, i), 1, 100);
  }
  const uint32_t first = test.AddCommunicator(0, 1, 0, "first");
  const uint32_t second = test.AddCommunicator(1, 2, 0, "second");
  {
    LaneWriter lane = test.Writer(0, first, LaneRole::kLaunch);
    for (uint32_t i = 0; i < 11; ++i) lane.Count(CallsKey(kAllReduceName, i), 1, 100);
  }
  {
    LaneWriter lane = test.Writer(1, second, LaneRole::kLaunch);
    lane.Count(CallsKey(kAllGatherName, 1), 3, 300);
    lane.Observe(LatencyKey(kAllGatherName, 1, LatencyKind::kDurationKernel), 5000, 1, 1);
    lane.Observe(LatencyKey(kAllGatherName, 1, LatencyKind::kCompletionProxy), 6000, 1, 1);
    for (UntimedReason reason : {UntimedReason{}, UntimedReason::kNotSampled}) {
      lane.CountSequenced(SeriesKey::Algorithm(kAllGatherName, static_cast<UntimedReason>(reason),
                                               kOtherName, kOtherName),
                          10);
    }
  }
  const CommunicatorSnapshot one = Read(test, 0);
  EXPECT_EQ(one.calls.size(), 7u) << "six, and the overflow";
  EXPECT_EQ(SumOfCalls(one), 11u);
  EXPECT_EQ(one.overflowed_operations, 5u);
  EXPECT_EQ(one.overflowed_calls, 5u);
  for (const CallCountSnapshot& calls : one.calls) {
    if (calls.op != "overflow") continue;
    EXPECT_EQ(calls.size_class, kOverflowSizeClass);
    EXPECT_EQ(calls.datatype, "overflow");
    EXPECT_EQ(calls.calls, 5u);
    EXPECT_EQ(calls.bytes, 500u);
  }
  const CommunicatorSnapshot two = Read(test, 1);
  ASSERT_EQ(two.calls.size(), 1u);
  EXPECT_EQ(two.calls[0].op, "overflow");
  EXPECT_EQ(two.calls[0].calls, 3u);
  ASSERT_EQ(two.latencies.size(), 2u) << "kinds of latency are never mixed";
  for (const LatencySnapshot& latency : two.latencies) {
    EXPECT_EQ(latency.op, "overflow");
    EXPECT_EQ(latency.histogram.Count(), 1u);
  }
  ASSERT_EQ(two.algorithms.size(), 1u);
  EXPECT_EQ(two.algorithms[0].op, "overflow");
  EXPECT_EQ(two.algorithms[0].operations, 2u);
  ASSERT_EQ(two.untimed.size(), 1u) << "nor are reasons";
  EXPECT_EQ(two.untimed[0].reason, UntimedReason::kNotSampled);
  EXPECT_EQ(two.untimed[0].operations, 1u);
  EXPECT_EQ(two.overflowed_operations, 5u);
  EXPECT_EQ(two.overflowed_calls, 3u) << "calls, not times";
  EXPECT_TRUE(two.sequences.empty()) << "one number for several operations would mislead";
  EXPECT_EQ(test.segment().header().series_used, kLimit);
}

// With overflow series, from many threads: the limit is not exceeded at any moment, and calls are
// counted all the same.
TEST(LaneWriter, TheLimitHoldsExactly) {
  for (const uint64_t limit : {uint64_t{0}, uint64_t{1}, uint64_t{16}, uint64_t{100}}) {
    TestSegment test(limit, 1000);
    constexpr uint32_t kCommunicators = 8;
    uint32_t generations[kCommunicators];
    for (uint32_t i = 0; i < kCommunicators; ++i) {
      generations[i] = test.AddCommunicator(i, i + 1, 0, "c");
    }
    std::atomic<int> running{kLanes};
    std::atomic<uint64_t> made{0};
    Threads threads(kLanes, [&](int t) {
      for (uint32_t i = 0; i < 40; ++i) {
        for (uint32_t index = 0; index < kCommunicators; ++index) {
          LaneWriter lane = test.Writer(index, generations[index], static_cast<LaneRole>(t % 3));
          if (!lane.ok()) continue;
          const auto op = static_cast<NameId>(kAllReduceName + i % 10);
          lane.Count(CallsKey(op, i % 11), 1, 10);
          lane.Observe(LatencyKey(op, i % 11, LatencyKind::kDurationStream), 5000, 1, 1);
          lane.CountSequenced(
              SeriesKey::Algorithm(op, static_cast<UntimedReason>(i % 3), kOtherName, kOtherName),
              i);
          ++made;
        }
      }
      --running;
    });
    while (running > 0) ASSERT_LE(test.segment().header().series_used.load(), limit);
    threads.Join();
    EXPECT_EQ(test.segment().header().series_used, limit);
    uint64_t entries = 0;
    uint64_t calls = 0;
    for (uint32_t index = 0; index < kCommunicators; ++index) {
      for (const SeriesEntry& entry : test.segment().record(index).series) {
        entries += entry.key != 0 ? 1 : 0;
      }
      calls += SumOfCalls(Read(test, index));
    }
    EXPECT_EQ(entries, limit) << "what is counted as used is used";
    EXPECT_EQ(calls, made);
  }
}

// A place that somebody gives back is found by the next operation: overflow is not for ever.
TEST(LaneWriter, RoomThatComesIsUsed) {
  TestSegment test(/*series_limit=*/16);
  const uint32_t ended = test.AddCommunicator(0, 1, 0, "ended");
  const uint32_t live = test.AddCommunicator(1, 2, 0, "live");
  {
    LaneWriter lane = test.Writer(0, ended, LaneRole::kLaunch);
    for (uint32_t i = 0; i < 16; ++i) lane.Count(CallsKey(kAllReduceName, i), 1, 10);
  }
  const auto call = [&] {
    LaneWriter lane = test.Writer(1, live, LaneRole::kLaunch);
    lane.Count(CallsKey(kAllGatherName, 1), 1, 10);
  };
  call();
  EXPECT_EQ(Read(test, 1).calls.at(0).op, "overflow");
  test.Record(0).Finalize(1);
  ASSERT_TRUE(test.Record(0).Recycle());
  for (int i = 0; i < 3; ++i) call();
  const CommunicatorSnapshot read = Read(test);
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_EQ(read.overflowed_calls, 1u);
  for (const CallCountSnapshot& calls : read.calls) {
    EXPECT_EQ(calls.calls, calls.op == "overflow" ? 1u : 3u);
  }
}

// Fills a communicator to its own limit with every kind of series, from as many threads as there
// are lanes, and goes on: what can be counted at all must be counted somewhere.
TEST(LaneWriter, PastTheCommunicatorsLimitNothingIsLost) {
  TestSegment test(/*series_limit=*/100000, /*chunks=*/1000);
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  std::vector<NameId> ops;
  ops.reserve(12);
  for (int i = 0; i < 12; ++i) ops.push_back(test.Intern(("Op" + std::to_string(i)).c_str()));
  constexpr int kThreads = kLanes;
  constexpr uint32_t kSizes = 11;
  Threads(kThreads, [&](int t) {
    LaneWriter lane = test.Writer(0, generation, static_cast<LaneRole>(t % 3));
    ASSERT_TRUE(lane.ok());
    for (NameId op : ops) {
      for (uint32_t size_class = 0; size_class < kSizes; ++size_class) {
        lane.Count(CallsKey(op, size_class), 1, 10);
      }
      for (uint32_t reason = 0; reason < static_cast<uint32_t>(kUntimedReasons); ++reason) {
        lane.CountSequenced(
            SeriesKey::Algorithm(op, static_cast<UntimedReason>(reason), kOtherName, kOtherName),
            1);
      }
      lane.Count(SeriesKey::Uncompleted(op), 1, 0);
      for (int reason = 1; reason < kUntimedReasons; ++reason) {
        lane.Count(UntimedKey(op, static_cast<UntimedReason>(reason)), 1, 0);
      }
      for (uint32_t kind = 1; kind <= 3; ++kind) {
        lane.Observe(LatencyKey(op, 0, static_cast<LatencyKind>(kind)), 5000, 1, 1);
      }
    }
  }).Join();

  const CommunicatorSnapshot read = Read(test);
  const uint64_t each = uint64_t{kThreads} * ops.size();
  EXPECT_EQ(SumOfCalls(read), each * kSizes);
  uint64_t algorithms = 0, uncompleted = 0, overflowed = 0, overflowed_untimed = 0;
  std::map<UntimedReason, uint64_t> untimed;
  std::map<LatencyKind, uint64_t> latencies;
  for (const auto& series : read.calls) overflowed += series.op == "overflow" ? series.calls : 0;
  for (const auto& series : read.algorithms) {
    algorithms += series.operations;
    overflowed += series.op == "overflow" ? series.operations : 0;
  }
  for (const auto& series : read.uncompleted) {
    uncompleted += series.operations;
    overflowed += series.op == "overflow" ? series.operations : 0;
  }
  for (const auto& series : read.untimed) {
    untimed[series.reason] += series.operations;
    overflowed_untimed += series.op == "overflow" ? series.operations : 0;
  }
  for (const auto& series : read.latencies) {
    latencies[series.kind] += series.histogram.Count();
    overflowed += series.op == "overflow" ? series.histogram.Count() : 0;
  }
  EXPECT_EQ(algorithms, each * kUntimedReasons);
  EXPECT_EQ(uncompleted, each);
  ASSERT_EQ(untimed.size(), static_cast<size_t>(kUntimedReasons - 1));
  for (const auto& [reason, count] : untimed) {
    EXPECT_EQ(count, 2 * each) << static_cast<int>(reason) << ": on its own and with an algorithm";
  }
  ASSERT_EQ(latencies.size(), 3u);
  for (const auto& [kind, count] : latencies) EXPECT_EQ(count, each) << static_cast<int>(kind);
  // What overflowed with its algorithm and its reason is one series, and is read as two.
  EXPECT_GE(read.overflowed_operations, overflowed);
  EXPECT_LE(read.overflowed_operations, overflowed + overflowed_untimed);
  EXPECT_GT(overflowed, 0u);
  EXPECT_LE(test.segment().record(0).series_count, static_cast<uint32_t>(kSeriesPerCommunicator));
}

TEST(LaneWriter, WithoutChunksOperationsAreCountedAsOverflowed) {
  TestSegment test(2048, /*chunks=*/2);
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    lane.Count(CallsKey(kAllReduceName, 1), 1, 10);                                      // chunk 1
    lane.Observe(LatencyKey(kAllReduceName, 1, LatencyKind::kDurationKernel), 1, 1, 1);  // chunk 2
    lane.Observe(LatencyKey(kAllReduceName, 2, LatencyKind::kDurationKernel), 1, 1, 1);
    lane.Count(CallsKey(kAllReduceName, 2), 1, 10);  // the chunk of counters is there
  }
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kProgress);
    lane.Count(CallsKey(kAllReduceName, 1), 1, 10);
  }
  CommunicatorSnapshot read = Read(test);
  EXPECT_EQ(SumOfCalls(read), 3u) << "calls need no chunk to be counted";
  EXPECT_EQ(read.latencies.size(), 1u);
  EXPECT_EQ(read.overflowed_operations, 2u);
  EXPECT_EQ(read.overflowed_calls, 1u);
  EXPECT_EQ(test.segment().chunks().missed(), 2u);

  // The background thread brings new chunks: everything is measured again.
  ASSERT_TRUE(test.segment().PopulateChunks(8, 8));
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kProgress);
    lane.Count(CallsKey(kAllReduceName, 1), 1, 10);
    lane.Observe(LatencyKey(kAllReduceName, 2, LatencyKind::kDurationKernel), 1, 1, 1);
  }
  read = Read(test);
  EXPECT_EQ(SumOfCalls(read), 4u);
  EXPECT_EQ(read.latencies.size(), 2u);
  EXPECT_EQ(read.overflowed_operations, 2u);
  EXPECT_EQ(read.overflowed_calls, 1u);
}

// Whether calls were counted by operation is one thing, whether a histogram had a chunk another.
TEST(LaneWriter, AMissingHistogramChunkIsNoOverflowedCall) {
  TestSegment test(2048, /*chunks=*/1);
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    for (uint32_t i = 0; i < 8; ++i) {
      lane.Count(CallsKey(kAllReduceName, i), 1, 10);
      lane.Observe(LatencyKey(kAllReduceName, i, LatencyKind::kDurationStream), 1, 1, 1);
    }
  }
  CommunicatorSnapshot read = Read(test);
  EXPECT_EQ(read.calls.size(), 8u);
  EXPECT_EQ(SumOfCalls(read), 8u);
  EXPECT_TRUE(read.latencies.empty());
  EXPECT_EQ(read.overflowed_calls, 0u);
  EXPECT_EQ(read.overflowed_operations, 8u);

  // What had no chunk at that moment gets one later.
  ASSERT_TRUE(test.segment().PopulateChunks(8, 8));
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    for (uint32_t i = 0; i < 8; ++i) {
      lane.Observe(LatencyKey(kAllReduceName, i, LatencyKind::kDurationStream), 1, 1, 1);
    }
  }
  read = Read(test);
  EXPECT_EQ(read.latencies.size(), 8u);
  EXPECT_EQ(read.overflowed_operations, 8u);
}

TEST(LaneWriter, OverflowWithoutChunksCountsOnce) {
  TestSegment test(/*series_limit=*/0, /*chunks=*/0);
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    lane.Count(CallsKey(kAllReduceName, 1), 1, 10);
    lane.Observe(LatencyKey(kAllReduceName, 2, LatencyKind::kDurationKernel), 1, 1, 1);
    lane.CountSequenced(SeriesKey::Algorithm(kAllReduceName, SeriesKey::kTimed, 0, 0), 1);
  }
  const CommunicatorSnapshot read = Read(test);
  EXPECT_EQ(read.overflowed_operations, 3u);
  EXPECT_EQ(read.overflowed_calls, 1u);
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(read.calls[0].op, "overflow");
  EXPECT_EQ(read.calls[0].bytes, 10u);
}

}  // namespace
}  // namespace nccl_pulse
