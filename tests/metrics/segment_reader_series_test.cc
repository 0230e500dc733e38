// Series and timed calls, as they are read from a segment.
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/header_writer.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

TEST(SegmentReader, EveryKindOfSeries) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  const NameId bf16 = test.Intern("ncclBfloat16");
  const NameId ring = test.Intern("RING");
  const NameId ll128 = test.Intern("LL128");
  const NameId future = test.Intern("AllFuture");
  // Written in two lanes: what is read is their sum.
  for (LaneRole role : {LaneRole::kLaunch, LaneRole::kProgress}) {
    LaneWriter lane = test.Writer(0, generation, role);
    for (const bool captured : {false, true}) {
      lane.Count(SeriesKey::Calls(kAllReduceName, 4, bf16, captured), captured ? 4 : 3, 1 << 20);
    }
    for (const UntimedReason reason : {SeriesKey::kTimed, UntimedReason::kGrouped}) {
      const uint64_t key = SeriesKey::Algorithm(kAllGatherName, reason, ring, ll128);
      for (uint64_t i = 1; i < 7; ++i) lane.CountSequenced(key, i);
      lane.CountSequenced(key,
                          role == LaneRole::kLaunch && reason == SeriesKey::kTimed ? 501 : 400);
    }
    for (int reason = 1; reason < kUntimedReasons; ++reason) {
      lane.Count(SeriesKey::Untimed(future, static_cast<UntimedReason>(reason)),
                 static_cast<uint64_t>(reason), 0);
    }
    lane.Count(SeriesKey::Uncompleted(kAllReduceName), 11, 0);
    lane.Observe(LatencyKey(future, 0, LatencyKind::kDurationKernel), 1500, 100, 150);
    lane.Observe(LatencyKey(future, 10, LatencyKind::kCompletionProxy), 2500, 200, 300);
    lane.Observe(LatencyKey(future, 10, LatencyKind::kCompletionKernel), 2, 0, 0);
  }

  const ProcessSnapshot process = Read(test.segment());
  ASSERT_EQ(process.communicators.size(), 1u);
  const CommunicatorSnapshot& read = process.communicators[0];
  EXPECT_EQ(process.series_used, test.segment().header().series_used);

  std::map<bool, CallCountSnapshot> calls;
  for (const CallCountSnapshot& series : read.calls) calls[series.captured] = series;
  ASSERT_EQ(read.calls.size(), 2u);
  for (bool captured : {false, true}) {
    EXPECT_EQ(calls[captured].op, "AllReduce");
    EXPECT_EQ(calls[captured].size_class, 4);
    EXPECT_EQ(calls[captured].datatype, "ncclBfloat16");
    EXPECT_EQ(calls[captured].calls, captured ? 8u : 6u);
    EXPECT_EQ(calls[captured].bytes, 2u << 20);
  }
  ASSERT_EQ(read.algorithms.size(), 1u);
  EXPECT_EQ(read.algorithms[0].op, "AllGather");
  EXPECT_EQ(read.algorithms[0].algo, "RING");
  EXPECT_EQ(read.algorithms[0].proto, "LL128");
  EXPECT_EQ(read.algorithms[0].operations, 28u) << "with and without a reason";
  std::map<UntimedReason, uint64_t> untimed;
  for (const UntimedSnapshot& series : read.untimed) {
    if (series.op == "AllGather") {
      EXPECT_EQ(series.reason, UntimedReason::kGrouped);
      EXPECT_EQ(series.operations, 14u);
      continue;
    }
    EXPECT_EQ(series.op, "AllFuture");
    untimed[series.reason] = series.operations;
  }
  ASSERT_EQ(untimed.size(), static_cast<size_t>(kUntimedReasons - 1));
  for (const auto& [reason, operations] : untimed) {
    EXPECT_EQ(operations, 2u * static_cast<uint64_t>(reason));
  }
  ASSERT_EQ(read.uncompleted.size(), 1u);
  EXPECT_EQ(read.uncompleted[0].op, "AllReduce");
  EXPECT_EQ(read.uncompleted[0].operations, 22u);
  ASSERT_EQ(read.sequences.size(), 1u);
  EXPECT_EQ(read.sequences[0].op, "AllGather");
  EXPECT_EQ(read.sequences[0].sequence, 500u) << "a gauge is not added up";
  ASSERT_EQ(read.latencies.size(), 3u);
  for (const LatencySnapshot& latency : read.latencies) {
    EXPECT_EQ(latency.op, "AllFuture");
    EXPECT_EQ(latency.histogram.Count(), 2u);
    const uint64_t ns = latency.kind == LatencyKind::kDurationKernel    ? 1500
                        : latency.kind == LatencyKind::kCompletionProxy ? 2500
                                                                        : 2;
    EXPECT_EQ(latency.histogram.cells[CellIndex(ns)], 2u);
    EXPECT_EQ(latency.histogram.sum_ns, 2 * ns);
    EXPECT_EQ(latency.size_class, latency.kind == LatencyKind::kDurationKernel ? 0 : 10);
    EXPECT_EQ(latency.bytes, ns == 1500 ? 200u : ns == 2500 ? 400u : 0u);
    EXPECT_EQ(latency.bus_bytes, ns == 1500 ? 300u : ns == 2500 ? 600u : 0u);
  }
}

TEST(SegmentReader, SeriesWithoutNumbersAreAbsent) {
  TestSegment test;
  test.AddCommunicator(0, 1, 0, "c");
  CommunicatorRecord& record = test.segment().record(0);
  record.series[3].key.store(SeriesKey::Calls(kAllReduceName, 0, 0, false));
  record.series[4].key.store(LatencyKey(kAllReduceName, 0, LatencyKind::kDurationKernel));
  record.series[5].key.store(SeriesKey::Pack(static_cast<SeriesKind>(99), 3, 0, 0, 0));
  const ProcessSnapshot read = Read(test.segment());
  ASSERT_EQ(read.communicators.size(), 1u);
  EXPECT_TRUE(read.communicators[0].calls.empty());
  EXPECT_TRUE(read.communicators[0].latencies.empty());
}

TEST(SegmentReader, TimedCallsOldestFirst) {
  TestSegment test;
  test.AddCommunicator(0, 1, 0, "c");
  HeaderWriter(test.segment()).RenewTimes(5000, 0);
  EXPECT_TRUE(Read(test.segment()).communicators[0].timed_calls.empty());
  uint32_t written = 0;
  const auto write_to = [&](uint32_t end) {
    for (; written < end; ++written) {
      test.Record(0).AppendTimedCall({kAllGatherName, LatencyKind::kCompletionProxy, 6, written,
                                      uint64_t{written} * 10, uint64_t{written} * 100,
                                      written + 1});
    }
  };
  for (uint32_t end : {1u, 5u, 32u, 33u, 50u, 64u, 1000u}) {
    write_to(end);
    const std::vector<TimedCallSnapshot> calls = Read(test.segment()).communicators[0].timed_calls;
    const uint32_t expected = std::min<uint32_t>(end, kTimedCalls);
    ASSERT_EQ(calls.size(), expected);
    for (uint32_t i = 0; i < expected; ++i) {
      const uint32_t number = end - expected + i;
      EXPECT_EQ(calls[i].call_number, number);
      EXPECT_EQ(calls[i].op, "AllGather");
      EXPECT_EQ(calls[i].kind, LatencyKind::kCompletionProxy);
      EXPECT_EQ(calls[i].size_class, 6);
      EXPECT_EQ(calls[i].bytes, number * 10u);
      EXPECT_EQ(calls[i].duration_ns, number * 100u);
      EXPECT_EQ(calls[i].end_realtime_ns, 5000 + static_cast<int64_t>(number) + 1);
    }
  }
  // A call that is not there. (tests/model/timed_call_test.cc has a call that is being written.)
  test.segment().record(0).timed_calls[(1000 - 3) % kTimedCalls].Reset();
  const std::vector<TimedCallSnapshot> calls = Read(test.segment()).communicators[0].timed_calls;
  ASSERT_EQ(calls.size(), kTimedCalls - 1u);
  for (const TimedCallSnapshot& call : calls) EXPECT_NE(call.call_number, 997u);
}

}  // namespace
}  // namespace nccl_pulse
