// When an operation counts as complete.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>

#include "plugin/tracker/operation_ring.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

const Environment kOff{{"NCCL_PULSE_TIMING", "off"}};

uint64_t ByProxy(uint64_t comm_id) {
  return Timed(Find(ReadSnapshot(), comm_id), LatencyKind::kCompletionProxy);
}

TEST_WITH_COMM(CompletionTest, BackgroundThreadSettlesAfterTheQuietTime) {
  const uint64_t before_ns = NowNs();
  comm.RunWithProxy();
  const uint64_t after_ns = NowNs();
  ASSERT_TRUE(WaitUntil([] { return ByProxy(1) == 1; }));
  // The time of the last stop, not of the settling a second later.
  const ProcessSnapshot snapshot = ReadSnapshot();
  for (const LatencySnapshot& latency : Find(snapshot, 1).latencies) {
    EXPECT_LE(latency.histogram.sum_ns, after_ns - before_ns);
    EXPECT_EQ(latency.op, "AllReduce");
    EXPECT_EQ(latency.bytes, NcclCommunicator::kBytes);
  }
  EXPECT_EQ(Uncompleted(Find(snapshot, 1)), 0u);
}

TEST_IN_CHILD(CompletionTest, LateProxyOpReopensWithinTheQuietTime) {
  // Started and stopped are equal in between; that must not end the operation. A machine that
  // stalls for the whole quiet time gets another try.
  for (uint64_t attempt = 1;; ++attempt) {
    NcclCommunicator comm(attempt);
    const uint64_t begin_ns = NowNs();
    void* coll = comm.Enqueue();
    Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
    EXPECT_TRUE(WaitUntil([&] { return NowNs() - begin_ns > 3000000; }));
    Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
    const uint64_t elapsed_ns = NowNs() - begin_ns;
    comm.Finalize();
    if (elapsed_ns > 900000000) continue;
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Ignored(snapshot, IgnoredReason::kAfterClose), 0u);
    const CommunicatorSnapshot& measured = Find(snapshot, attempt);
    ASSERT_EQ(Timed(measured, LatencyKind::kCompletionProxy), 1u);
    EXPECT_GT(measured.latencies[0].histogram.sum_ns, 3000000u);
    EXPECT_LE(measured.latencies[0].histogram.sum_ns, elapsed_ns);
    return;
  }
}

TEST_WITH_COMM(CompletionTest, SlotNeedSettles) {
  comm.RunWithProxy();
  for (uint32_t i = 0; i < kOperationSlots; ++i) comm.Enqueue();
  EXPECT_EQ(ByProxy(1), 1u);
}

TEST_WITH_COMM(CompletionTest, WithoutTrafficAutoTimingSaysNothing) {
  for (int i = 0; i < 1000; ++i) comm.Enqueue();
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_TRUE(measured.latencies.empty());
  EXPECT_EQ(Uncompleted(measured), 0u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kNotTimed), 1000u);
  EXPECT_EQ(Calls(measured), 1000u);
  EXPECT_EQ(Bytes(measured), 1000 * NcclCommunicator::kBytes);
  EXPECT_EQ(measured.launches, 1000u);
}

TEST_WITH_COMM(CompletionTest, TimingOffTracksNothing, kOff) {
  EXPECT_EQ(comm.event_mask() & static_cast<int>(abi::kEventProxyOp), 0);
  EXPECT_EQ(comm.Enqueue(), nullptr);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Calls(Find(snapshot, 1)), 1u);
  EXPECT_EQ(Operations(Find(snapshot, 1)), 1u);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

TEST_WITH_COMM(CompletionTest, ByChannels, kKernel) {
  comm.RunWithKernel(4, 1000, 5000);
  const ProcessSnapshot snapshot = ReadSnapshot();  // at once: nothing has to be waited for
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionKernel), 1u);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel), 1u);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), 0u);
  EXPECT_GT(measured.last_completion_realtime_ns, 0);
  EXPECT_EQ(snapshot.callbacks[static_cast<size_t>(CallbackKind::kKernel)], 12u);
}

TEST_WITH_COMM(CompletionTest, ChannelThatNeverStops, kKernel) {
  void* coll = comm.Enqueue(2);
  RecordAndStopChannel(Start(comm.context(), ChannelEvent(coll, 0, 1000)), 2000);
  Start(comm.context(), ChannelEvent(coll, 1, 1000));
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_TRUE(Find(snapshot, 1).latencies.empty());
  EXPECT_EQ(Uncompleted(Find(snapshot, 1)), 1u);
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kLost), 1u);
}

// With traffic, the network decides when the operation ended, in whichever order the stops come.
TEST_WITH_COMM(CompletionTest, ProxyOpsAndChannels, kKernel) {
  for (const bool proxy_first : {true, false}) {
    void* coll = comm.Enqueue(1);
    void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
    const uint64_t gpu_ns = proxy_first ? 1000 : 3000;
    void* channel = Start(comm.context(), ChannelEvent(coll, 0, gpu_ns));
    if (proxy_first) Stop(proxy);
    RecordAndStopChannel(channel, gpu_ns + 1000);
    if (!proxy_first) Stop(proxy);
  }
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel), 2u);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), 2u);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionKernel), 0u);
  EXPECT_EQ(Uncompleted(measured), 0u);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

// The channels of an operation are still running, so its silent network does not end it.
TEST_WITH_COMM(CompletionTest, QuietNetworkDoesNotSettleWhileChannelsRun, kKernel) {
  NcclCommunicator clock(2);  // settled by the same thread in the same round or a later one
  void* coll = comm.Enqueue(1);
  void* channel = Start(comm.context(), ChannelEvent(coll, 0, 1000));
  Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
  void* other = clock.Enqueue(1);
  RecordAndStopChannel(Start(clock.context(), ChannelEvent(other, 0, 1000)), 2000);
  void* with_traffic = clock.Enqueue(1);
  Stop(Start(clock.context(), ProxyOpEvent(with_traffic, getpid())));
  RecordAndStopChannel(Start(clock.context(), ChannelEvent(with_traffic, 0, 3000)), 4000);
  ASSERT_TRUE(WaitUntil([] { return ByProxy(2) == 1; }));
  EXPECT_EQ(ByProxy(1), 0u);
  RecordAndStopChannel(channel, 2000);
  EXPECT_TRUE(WaitUntil([] { return ByProxy(1) == 1; }));
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kDurationKernel), 1u);
}

}  // namespace
}  // namespace nccl_pulse
