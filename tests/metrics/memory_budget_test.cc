// What is promised: at most 66 KiB per communicator and 5 MiB per process at 64 communicators with
// 4 series each, in the default configuration; with kernel timing the last calls come on top of
// that, 8 KiB per communicator, the calls by peer, and what is remembered of kinds of calls and
// operations. Computed
// from the sizes of what is really allocated, with the chunks that lanes really take; no resident
// set is looked at.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>

#include "gtest/gtest.h"
#include "metrics/lane_writer.h"
#include "metrics/segment.h"
#include "metrics/segment_layout.h"
#include "metrics/snapshot.h"
#include "metrics/testing/test_segment.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/ready_chunks.h"
#include "plugin/tracker/step_table.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {
namespace {

constexpr size_t kCommunicatorBudget = 66 * 1024;
constexpr size_t kProcessBudget = size_t{5} << 20;
constexpr uint32_t kLastCalls = 256;
constexpr size_t kLastCallsBudget = 8192;
constexpr size_t kKindsBudget = sizeof(CallKinds) + sizeof(OperationKinds) + sizeof(PeerCallTable);
constexpr uint32_t kCommunicators = 64;
// As many chunks as the tracker has ready, when none is missed and nothing more is expected.
constexpr uint32_t kReadyChunks = ReadyChunks::kLeast;
constexpr uint32_t kReadyChunksAtInit = kReadyChunks + 2 * ReadyChunks::kOfNewcomer;

// Memory of one communicator outside the segment, but for its place in the tracker's table.
size_t PrivateBytes(bool kernel_timing) { return CommunicatorParts::BytesFor(kernel_timing); }

// Drives a communicator as the tracker does: calls, algorithm, sequence and untimed operations on
// the launching thread, latencies and what is settled on the progress thread. Four latency series.
void Drive(TestSegment& test, uint32_t index, uint32_t generation, bool kernel_timing) {
  const NameId ops[] = {kAllReduceName, kAllGatherName, kReduceScatterName, kAlltoAllName};
  for (uint32_t i = 0; i < 1000; ++i) {
    // With kernel timing each of two operations has both its latencies.
    const NameId op = ops[i % (kernel_timing ? 2 : 4)];
    constexpr uint32_t kSizeClass = 5;
    {
      LaneWriter lane = test.Writer(index, generation, LaneRole::kLaunch);
      lane.Count(SeriesKey::Calls(op, kSizeClass, kNoName, false), 1, 1 << 20);
      const UntimedReason reason = kernel_timing ? SeriesKey::kTimed : UntimedReason::kNotSampled;
      lane.CountSequenced(SeriesKey::Algorithm(op, reason, 20, 21), i + 1);
    }
    LaneWriter lane = test.Writer(index, generation, LaneRole::kProgress);
    if (i % 100 == 99) {  // GPU timestamps that fail their checks, an end that was not seen
      lane.Count(SeriesKey::Untimed(op, UntimedReason::kOverlap), 1, 0);
      lane.Count(SeriesKey::Uncompleted(op), 1, 0);
      continue;
    }
    lane.Observe(SeriesKey::Latency(op, kSizeClass, LatencyKind::kCompletionProxy), 5000, 1, 1);
    if (kernel_timing) {
      lane.Observe(SeriesKey::Latency(op, kSizeClass, LatencyKind::kDurationKernel), 5000, 1, 1);
    }
  }
}

size_t ChunksOf(const CommunicatorRecord& record) {
  std::set<uint16_t> chunks;
  for (const Lane& lane : record.lanes) chunks.insert(lane.counter_chunk.load());
  for (const SeriesEntry& series : record.series) {
    for (const auto& chunk : series.chunk) chunks.insert(chunk.load());
  }
  chunks.erase(kNoChunk);
  return chunks.size();
}

size_t LatencySeriesOf(const CommunicatorRecord& record) {
  size_t series = 0;
  for (const SeriesEntry& entry : record.series) {
    const uint64_t key = entry.key.load();
    series += key != 0 && SeriesKey::Kind(key) == SeriesKind::kLatency ? 1 : 0;
  }
  return series;
}

class MemoryBudget : public ::testing::TestWithParam<bool> {};

TEST_P(MemoryBudget, CommunicatorAndProcess) {
  const bool kernel_timing = GetParam();
  TestSegment test(2048, 0, kLastCalls);
  Segment& segment = test.segment();
  for (uint32_t index = 0; index < kCommunicators; ++index) {
    ASSERT_TRUE(segment.PopulateChunks(kReadyChunksAtInit, kReadyChunksAtInit));
    const uint32_t generation = test.AddCommunicator(index, index + 1, 0, "c");
    Drive(test, index, generation, kernel_timing);
    ASSERT_TRUE(segment.PopulateChunks(kReadyChunks, kReadyChunks));
  }

  size_t chunks = 0;
  for (uint32_t index = 0; index < kCommunicators; ++index) {
    const CommunicatorRecord& record = segment.record(index);
    ASSERT_EQ(LatencySeriesOf(record), 4u);
    for (const Lane& lane : record.lanes) EXPECT_EQ(lane.overflowed_operations, 0u);
    // Four histograms, and the counters of two lanes.
    EXPECT_EQ(ChunksOf(record), 6u);
    chunks += ChunksOf(record);
  }
  EXPECT_EQ(segment.header().last_call_chunks_used,
            kCommunicators * kLastCalls / kLastCallsPerChunk);
  const size_t last_calls = segment.header().last_call_chunks_used * kChunkBytes;
  EXPECT_EQ(last_calls, kCommunicators * kLastCallsBudget);
  const size_t communicator = kRecordStride + ChunksOf(segment.record(0)) * kChunkBytes +
                              PrivateBytes(kernel_timing) + sizeof(Communicator) + kLastCallsBudget;
  RecordProperty("communicator_bytes", static_cast<int>(communicator));
  EXPECT_LE(communicator,
            kCommunicatorBudget + (kernel_timing ? kLastCallsBudget + kKindsBudget : 0));

  // The segment is no larger than what is used of it, and the reserve of chunks.
  const size_t used = kHeaderBytes + kNamesBytes + kCommunicators * kRecordStride +
                      (chunks + kReadyChunksAtInit) * kChunkBytes + last_calls;
  EXPECT_LE(segment.populated_bytes(), used);
  const size_t links = segment.chunks().chunk_count() * sizeof(std::atomic<uint32_t>);
  const size_t process = segment.populated_bytes() + links + sizeof(Segment) + sizeof(Tracker) +
                         kCommunicators * PrivateBytes(kernel_timing) + sizeof(StepTable);
  RecordProperty("process_bytes", static_cast<int>(process));
  EXPECT_LE(process,
            kProcessBudget + (kernel_timing ? last_calls + kCommunicators * kKindsBudget : 0));
  printf("%s: %zu bytes a communicator, %zu bytes a process\n",
         kernel_timing ? "kernel timing" : "default", communicator, process);
}

INSTANTIATE_TEST_SUITE_P(Timing, MemoryBudget, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Kernel" : "Default"; });

}  // namespace
}  // namespace nccl_pulse
