// Reading beside writers.
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

TEST(SegmentReader, NothingEverStepsBack) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  constexpr uint64_t kBytes = 1000;
  std::atomic<int> running{2};
  const auto write = [&](LaneRole role) {
    for (uint64_t i = 0; i < 200000; ++i) {
      LaneWriter lane = test.Writer(0, generation, role);
      if (!lane.ok()) continue;
      lane.lane().launches.publish_sum(1);
      lane.lane().callbacks[1].publish_sum(1);
      lane.Count(SeriesKey::Calls(kAllReduceName, static_cast<uint32_t>(i % 3), kNoName, false), 1,
                 kBytes);
      lane.Observe(
          LatencyKey(kAllReduceName, static_cast<uint32_t>(i % 3), LatencyKind::kCompletionProxy),
          1000 << (i % 16), kBytes, 2 * kBytes);
    }
    --running;
  };
  std::thread launching([&] { write(LaneRole::kLaunch); });
  std::thread progress([&] { write(LaneRole::kProgress); });

  uint64_t launches = 0, callbacks = 0;
  std::map<int, CallCountSnapshot> calls;
  std::map<int, LatencySnapshot> latencies;
  bool last_round = false;
  while (true) {
    // Once more after the last write: what is read then is the whole.
    last_round = running == 0;
    const ProcessSnapshot process = Read(test.segment());
    ASSERT_EQ(process.communicators.size(), 1u);
    const CommunicatorSnapshot& read = process.communicators[0];
    ASSERT_GE(read.launches, launches);
    launches = read.launches;
    ASSERT_GE(process.callbacks[1], callbacks);
    callbacks = process.callbacks[1];
    ASSERT_GE(read.calls.size(), calls.size()) << "a series never goes away";
    for (const CallCountSnapshot& series : read.calls) {
      CallCountSnapshot& previous = calls[series.size_class];
      ASSERT_GE(series.calls, previous.calls);
      ASSERT_GE(series.bytes, previous.bytes);
      ASSERT_GE(series.bytes, series.calls * kBytes) << "a counted call has its bytes";
      previous = series;
    }
    ASSERT_GE(read.latencies.size(), latencies.size());
    for (const LatencySnapshot& series : read.latencies) {
      LatencySnapshot& previous = latencies[series.size_class];
      uint64_t least_ns = 0;
      for (int cell = 0; cell < kHistogramCells; ++cell) {
        ASSERT_GE(series.histogram.cells[cell], previous.histogram.cells[cell]);
        if (cell > 0) {
          least_ns += series.histogram.cells[cell] *
                      static_cast<uint64_t>(CellUpperBoundSeconds(cell - 1) * 1e9);
        }
      }
      ASSERT_GE(series.histogram.sum_ns, previous.histogram.sum_ns);
      ASSERT_GE(series.histogram.sum_ns, least_ns) << "a counted latency is in the sum";
      ASSERT_GE(series.bytes, series.histogram.Count() * kBytes);
      ASSERT_GE(series.bus_bytes, series.histogram.Count() * 2 * kBytes);
      previous = series;
    }
    if (last_round) break;
  }
  launching.join();
  progress.join();
  uint64_t counted = 0, observed = 0;
  for (const auto& [size_class, series] : calls) {
    counted += series.calls;
    EXPECT_EQ(series.bytes, series.calls * kBytes);
  }
  for (const auto& [size_class, series] : latencies) observed += series.histogram.Count();
  EXPECT_EQ(counted, launches);
  EXPECT_EQ(observed, launches);
  EXPECT_EQ(callbacks, launches);
}

TEST(SegmentReader, ARecyclerThatDiedDoesNotKeepTheReader) {
  TestSegment test;
  test.AddCommunicator(0, 1, 0, "c");
  test.segment().WritableHeader().recycle_epoch.Begin();
  EXPECT_EQ(Read(test.segment()).communicators.size(), 1u);
}

// Whatever is in it: no snapshot larger than asked for, not even for a moment.
TEST(SegmentReader, ASnapshotThatWouldBeTooLargeIsGivenUp) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "world");
  LaneWriter lane = test.Writer(0, generation, LaneRole::kProgress);
  for (uint32_t size = 0; size < 10; ++size) {
    lane.Observe(LatencyKey(kAllReduceName, size, LatencyKind::kDurationStream), 1000, 1, 1);
  }
  const void* base = test.segment().base();
  const size_t bytes = test.segment().bytes();
  ProcessSnapshot snapshot;
  std::string error;
  SnapshotLimit enough{64 << 10};
  ASSERT_TRUE(ReadSegment(base, bytes, &snapshot, &error, {}, &enough)) << error;
  EXPECT_FALSE(enough.exceeded);
  EXPECT_EQ(snapshot.communicators.front().latencies.size(), 10u);
  SnapshotLimit little{10 << 10};
  EXPECT_FALSE(ReadSegment(base, bytes, &snapshot, &error, {}, &little));
  EXPECT_TRUE(little.exceeded);
  EXPECT_EQ(error, "more than 10240 bytes of measurements");
  EXPECT_TRUE(snapshot.communicators.empty());
  // What is damaged is something else.
  SnapshotLimit unused{10 << 10};
  EXPECT_FALSE(ReadSegment("garbage", 7, &snapshot, &error, {}, &unused));
  EXPECT_FALSE(unused.exceeded);
}

}  // namespace
}  // namespace nccl_pulse
