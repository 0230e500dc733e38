// What the reader refuses, and says why.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

TEST(SegmentReader, NamesThatAreNotThere) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    lane.Count(SeriesKey::Uncompleted(127), 1, 0);
  }
  EXPECT_EQ(Read(test.segment()).communicators[0].uncompleted[0].op, "unknown");
}

TEST(SegmentReader, SaysWhatIsWrong) {
  TestSegment test;
  Segment& segment = test.segment();
  SegmentHeader& header = segment.WritableHeader();
  const auto error_of = [&](size_t bytes) {
    ProcessSnapshot snapshot;
    snapshot.pid = 1;
    std::string error;
    EXPECT_FALSE(ReadSegment(segment.base(), bytes, &snapshot, &error));
    EXPECT_EQ(snapshot.pid, 0) << "nothing of the old one is left";
    return error;
  };
  EXPECT_EQ(error_of(0), "segment of 0 bytes is too small for a header");
  EXPECT_EQ(error_of(8191), "segment of 8191 bytes is too small for a header");
  EXPECT_NE(error_of(8192).find("geometry"), std::string::npos);
  EXPECT_NE(error_of(segment.bytes() - 65536 - 4096).find("geometry"), std::string::npos);
  header.version = kSegmentVersion + 1;
  EXPECT_EQ(error_of(segment.bytes()), "segment version 16, this reader knows 15");
  header.version = kSegmentVersion;
  header.magic ^= 1;
  EXPECT_EQ(error_of(segment.bytes()), "not a segment: wrong magic number");
  header.magic ^= 1;
  const auto wrong = [&](auto& field, auto value) {
    const auto right = field;
    field = value;
    const std::string error = error_of(segment.bytes());
    EXPECT_NE(error.find("geometry"), std::string::npos) << error;
    field = right;
  };
  wrong(header.names_offset, 8192u);
  wrong(header.communicators_offset, 4096u);
  wrong(header.communicator_bytes, 64u);
  wrong(header.communicator_count, kMaxCommunicators + 1);
  wrong(header.chunk_bytes, 4096u);
  wrong(header.chunk_count, header.chunk_count + 100);
  wrong(header.chunk_count, UINT32_MAX);
  wrong(header.name_count, 0u);
  wrong(header.chunks_offset, uint64_t{8192});
  wrong(header.chunks_offset, UINT64_MAX - 2047);
  wrong(header.chunks_offset, header.chunks_offset + 8);
  Read(segment);  // right again
}

TEST(SegmentReader, AChunkBelongsToOneEntry) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "honest");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    lane.Observe(LatencyKey(kAllReduceName, 0, LatencyKind::kDurationKernel), 5000, 1, 1);
  }
  CommunicatorRecord& honest = test.segment().record(0);
  uint16_t chunk = kNoChunk;
  for (const SeriesEntry& series : honest.series) {
    if (series.key.load() != 0) chunk = series.chunk[0].load();
  }
  ASSERT_NE(chunk, kNoChunk);
  for (uint32_t index = 1; index < 4; ++index) {
    test.AddCommunicator(index, index, 0, "greedy");
    for (uint32_t i = 0; i < kSeriesPerCommunicator; ++i) {
      SeriesEntry& series = test.segment().record(index).series[i];
      series.key.store(LatencyKey(static_cast<NameId>(i), i, LatencyKind::kDurationKernel));
      for (auto& slot : series.chunk) slot.store(chunk);
    }
  }
  const ProcessSnapshot read = Read(test.segment());
  ASSERT_EQ(read.communicators.size(), 4u);
  ASSERT_EQ(read.communicators[0].latencies.size(), 1u);
  EXPECT_EQ(read.communicators[0].latencies[0].histogram.Count(), 1u);
  for (int greedy = 1; greedy < 4; ++greedy) {
    EXPECT_TRUE(read.communicators[greedy].latencies.empty());
  }
}

}  // namespace
}  // namespace nccl_pulse
