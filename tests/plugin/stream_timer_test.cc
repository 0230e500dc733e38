// What is timed on a stream, and what the time is attributed to.
#include <gtest/gtest.h>

#include <array>

#include "tests/plugin/stream_job.h"
#include "tests/plugin/stream_timer_checks.h"

namespace nccl_pulse {
namespace {

TEST_WITH_STREAM(StreamTimerTest, ASingleCollectiveHasItsLaunchesDuration) {
  comm.TimeEveryCall();
  uint64_t sum_ns = 0;
  const std::array<uint64_t, 6> durations = {1000, 2900, 72000, 888000, 17 * kMs, 3 * kSecond};
  for (uint64_t duration_ns : durations) {
    comm.Run(duration_ns);
    sum_ns += duration_ns;
    AdvanceAndPoll(gpu, duration_ns);
  }
  const CommunicatorSnapshot measured = comm.Read();
  const LatencySnapshot latency = StreamLatency(measured, "AllReduce");
  EXPECT_EQ(latency.histogram.Count(), durations.size());
  ExpectSeconds(latency.histogram.sum_ns, sum_ns, durations.size());
  EXPECT_EQ(latency.bytes, durations.size() * 4096);
  EXPECT_EQ(latency.bus_bytes, durations.size() * 4096);  // 2 (n-1)/n of two ranks
  EXPECT_EQ(Untimed(measured, UntimedReason::kNotSampled), 2u);
  ExpectEveryOperationOnce(measured, durations.size() + 2);
  ASSERT_EQ(measured.timed_calls.size(), durations.size());
  EXPECT_EQ(measured.timed_calls[0].call_number, 2u);
  EXPECT_EQ(ReadSnapshot().duration_source, "stream");
  EXPECT_EQ(Ignored(ReadSnapshot()), 0u);
}

TEST_WITH_STREAM(StreamTimerTest, OneCollectiveInAnExplicitGroupToo) {
  TimeEveryCall();
  for (int i = 0; i < 3; ++i) comm.RunGroup(5 * kMs, {{"AllGather", 1 << 20}});
  AdvanceAndPoll(gpu, kSecond);
  const LatencySnapshot latency = StreamLatency(comm.Read(), "AllGather");
  EXPECT_EQ(latency.histogram.Count(), 1u);
  ExpectSeconds(latency.histogram.sum_ns, 5 * kMs, 1);
  EXPECT_EQ(latency.bytes, 1u << 20);
  ExpectEveryOperationOnce(comm.Read(), 3);
}

TEST_WITH_STREAM(StreamTimerTest, TheFirstTwoCallsOfEachKindAreNotTimed) {
  TimeEveryCall();
  for (const char* op : {"AllReduce", "AllGather", "Broadcast", "Send"}) {
    for (uint64_t bytes : {64u, 1u << 20}) {
      for (int i = 0; i < 4; ++i) comm.Run(1000, op, bytes);
      AdvanceAndPoll(gpu, kMs);
    }
  }
  for (int i = 0; i < 4; ++i) comm.RunGroup(1000, {{"Send", 64}, {"Recv", 64}});
  AdvanceAndPoll(gpu, kMs);
  const CommunicatorSnapshot measured = comm.Read();
  for (const char* op : {"AllReduce", "AllGather", "Broadcast", "Send"}) {
    EXPECT_EQ(StreamLatency(measured, op).histogram.Count(), 4u) << op;
  }
  EXPECT_EQ(StreamLatency(measured, "Grouped").histogram.Count(), 2u);
  for (const TimedCallSnapshot& call : measured.timed_calls) EXPECT_GE(call.call_number, 2u);
  ExpectEveryOperationOnce(measured, 8 * 4 + 4 * 2);
}

TEST_WITH_STREAM(StreamTimerTest, SeveralOperationsOfALaunchAreTimedAsAGroup) {
  TimeEveryCall();
  for (int i = 0; i < 3; ++i) {
    comm.RunGroup(7 * kMs, {{"AllReduce", 1000}, {"AllGather", 2000}, {"Send", 500}});
  }
  AdvanceAndPoll(gpu, kSecond);
  const CommunicatorSnapshot measured = comm.Read();
  const LatencySnapshot latency = StreamLatency(measured, "Grouped");
  EXPECT_EQ(latency.histogram.Count(), 1u);
  ExpectSeconds(latency.histogram.sum_ns, 7 * kMs, 1);
  EXPECT_EQ(latency.bytes, 3500u);
  EXPECT_EQ(latency.bus_bytes, 3500u);
  EXPECT_EQ(TimedOperations(measured), 0u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kGrouped), 3u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kNotSampled), 6u);
}

// NCCL plans the collectives of a group first, the point-to-point operations after them, and cuts
// where its memory ends.
TEST_WITH_STREAM(StreamTimerTest, AGroupCutIntoSeveralLaunches) {
  TimeEveryCall();
  for (int round = 0; round < 3; ++round) {
    void* group = comm.StartGroup();
    const auto reduce = comm.MakeCall(group, "AllReduce", 1000);
    const auto send = comm.MakeCall(group, "Send", 300);
    const auto receive = comm.MakeCall(group, "Recv", 20);
    comm.Launch(group, 2 * kMs);
    comm.Report(reduce);
    comm.Launch(group, 3 * kMs);
    comm.Report(send);
    comm.Report(receive);
    comm.StopGroup(group);
  }
  AdvanceAndPoll(gpu, kSecond);
  const CommunicatorSnapshot measured = comm.Read();
  const LatencySnapshot latency = StreamLatency(measured, "Grouped");
  EXPECT_EQ(latency.histogram.Count(), 4u);  // of six launches the first two are not timed
  ExpectSeconds(latency.histogram.sum_ns, 10 * kMs, 4);
  EXPECT_EQ(latency.bytes, 2u * 1320);
  EXPECT_EQ(measured.launches, 6u);
  EXPECT_EQ(measured.launches_completed, 6u);
  ExpectEveryOperationOnce(measured, 9);
}

// Operations that NCCL does not report below the call: the first launch stands for their bytes.
TEST_WITH_STREAM(StreamTimerTest, AGroupOfUnreportedOperationsCountsItsBytesOnce) {
  TimeEveryCall();
  for (int round = 0; round < 3; ++round) {
    void* group = comm.StartGroup();
    comm.MakeCall(group, "AllReduce", 1000);
    comm.MakeCall(group, "AllReduce", 3000);
    comm.Launch(group, kMs);
    comm.Launch(group, kMs);
    comm.StopGroup(group);
  }
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(StreamLatency(comm.Read(), "Grouped").histogram.Count(), 4u);
  EXPECT_EQ(StreamLatency(comm.Read(), "Grouped").bytes, 2u * 4000);
}

TEST_WITH_STREAM(StreamTimerTest, PointToPoint) {
  TimeEveryCall();
  for (int i = 0; i < 3; ++i) comm.Run(4 * kMs, "Recv", 2048);
  AdvanceAndPoll(gpu, kSecond);
  const LatencySnapshot latency = StreamLatency(comm.Read(), "Recv");
  EXPECT_EQ(latency.histogram.Count(), 1u);
  ExpectSeconds(latency.histogram.sum_ns, 4 * kMs, 1);
  EXPECT_EQ(latency.bus_bytes, 2048u);
  ExpectEveryOperationOnce(comm.Read(), 3);
}

}  // namespace
}  // namespace nccl_pulse
