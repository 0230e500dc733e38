#include "metrics/lane_writer.h"

#include <atomic>
#include <cstdint>

#include "gtest/gtest.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/lane_reading.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

TEST(LaneWriter, RolesPreferTheirLanes) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  CommunicatorRecord& record = test.segment().record(0);
  for (LaneRole role : {LaneRole::kLaunch, LaneRole::kProgress, LaneRole::kBackground}) {
    LaneWriter lane = test.Writer(0, generation, role);
    EXPECT_EQ(&lane.lane(), &record.lanes[static_cast<int>(role)]);
    LaneWriter next = test.Writer(0, generation, role);
    EXPECT_EQ(&next.lane(), &record.lanes[static_cast<int>(role) + 1]);
  }
  for (const Lane& lane : record.lanes) EXPECT_FALSE(lane.claim.is_held()) << "all were given back";
}

TEST(LaneWriter, AllLanesTaken) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  {
    LaneWriter first = test.Writer(0, generation, LaneRole::kLaunch);
    LaneWriter second = test.Writer(0, generation, LaneRole::kLaunch);
    LaneWriter third = test.Writer(0, generation, LaneRole::kBackground);
    LaneWriter fourth = test.Writer(0, generation, LaneRole::kProgress);
    EXPECT_TRUE(first.ok() && second.ok() && third.ok() && fourth.ok());
    EXPECT_FALSE(test.Writer(0, generation, LaneRole::kLaunch).ok());
    EXPECT_FALSE(test.Writer(0, generation, LaneRole::kBackground).ok());
  }
  EXPECT_TRUE(test.Writer(0, generation, LaneRole::kLaunch).ok());
}

TEST(LaneWriter, ThreadsOnOneCommunicatorLoseNothing) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  constexpr int kThreads = 4;  // as many as there are lanes: each finds one
  constexpr int kRounds = 20000;
  const NameId ops[] = {kAllReduceName, kAllGatherName, kReduceScatterName};
  std::atomic<int> not_ok{0};
  Threads(kThreads, [&](int t) {
    for (int i = 0; i < kRounds; ++i) {
      LaneWriter lane = test.Writer(0, generation, static_cast<LaneRole>((t + i) % 3));
      if (!lane.ok()) {
        // Passed over one that had been taken when it looked there, and was then given back.
        ++not_ok;
        continue;
      }
      const auto size_class = static_cast<uint32_t>(i % 4);
      lane.Count(CallsKey(ops[i % 3], size_class), 1, 10);
      lane.Observe(LatencyKey(ops[i % 3], size_class, LatencyKind::kCompletionProxy), 5000, 7, 9);
    }
  }).Join();
  const uint64_t expected = uint64_t{kThreads} * kRounds - static_cast<uint64_t>(not_ok);
  const CommunicatorSnapshot read = Read(test);
  EXPECT_EQ(read.overflowed_operations, 0u);
  EXPECT_EQ(read.calls.size(), 12u) << "each series once, however many threads enter it";
  EXPECT_EQ(read.latencies.size(), 12u);
  uint64_t calls = 0, bytes = 0, observed = 0, sum_ns = 0, timed_bytes = 0, bus_bytes = 0;
  for (const CallCountSnapshot& series : read.calls) {
    calls += series.calls;
    bytes += series.bytes;
  }
  for (const LatencySnapshot& series : read.latencies) {
    observed += series.histogram.Count();
    sum_ns += series.histogram.sum_ns;
    timed_bytes += series.bytes;
    bus_bytes += series.bus_bytes;
  }
  EXPECT_EQ(calls, expected);
  EXPECT_EQ(bytes, expected * 10);
  EXPECT_EQ(observed, expected);
  EXPECT_EQ(sum_ns, expected * 5000);
  EXPECT_EQ(timed_bytes, expected * 7);
  EXPECT_EQ(bus_bytes, expected * 9);
  EXPECT_EQ(test.segment().header().series_used, 24u);
}

}  // namespace
}  // namespace nccl_pulse
