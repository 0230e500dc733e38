// GPU times (timing "kernel"): which are believed, and which are not.
#include <gtest/gtest.h>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

using NameCounts = std::map<std::string, uint64_t>;

// As NCCL has them: the GPU's clock counts from 1970.
constexpr uint64_t kEpochNs = 1795251885379854240;

struct Interval {
  uint64_t start_ns, stop_ns;
};

// An operation with these channels, from 0 on.
void RunChannels(NcclCommunicator& comm, const std::vector<Interval>& channels) {
  void* coll = comm.Enqueue(static_cast<uint8_t>(channels.size()));
  std::vector<void*> handles;
  for (size_t i = 0; i < channels.size(); ++i) {
    handles.push_back(Start(comm.context(), ChannelEvent(coll, static_cast<uint8_t>(i),
                                                         kEpochNs + channels[i].start_ns)));
  }
  for (size_t i = 0; i < channels.size(); ++i) {
    RecordAndStopChannel(handles[i], kEpochNs + channels[i].stop_ns);
  }
}

uint64_t SumNs(const CommunicatorSnapshot& communicator) {
  uint64_t sum_ns = 0;
  for (const LatencySnapshot& latency : communicator.latencies) {
    if (latency.kind == LatencyKind::kDurationKernel) sum_ns += latency.histogram.sum_ns;
  }
  return sum_ns;
}

TEST_WITH_COMM(KernelTimingTest, ChannelsNeedNotStartAtZero, kKernel) {
  comm.RunWithKernel(2, 1000, 2000, 3);
  comm.RunWithKernel(1, 3000, 4000, 63);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationKernel), 2u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionKernel), 2u);
}

TEST_WITH_COMM(KernelTimingTest, AllChannelsThatNcclHas, kKernel) {
  comm.RunWithKernel(64, 1000, 2000);
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kDurationKernel), 1u);
}

TEST_WITH_COMM(KernelTimingTest, ChannelNumberBeyondAll, kKernel) {
  void* coll = comm.Enqueue(2);
  EXPECT_EQ(Start(comm.context(), ChannelEvent(coll, 255, 1000)), nullptr);
  EXPECT_EQ(Start(comm.context(), ChannelEvent(coll, 64, 1000)), nullptr);
  comm.RunWithKernel(2, 1000, 2000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"no_room", 2}}));
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationKernel), 1u);
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kInvisible), 1u);
}

// CollNet and multi-node NVLS do not say how many channels there are.
TEST_WITH_COMM(KernelTimingTest, NumberOfChannelsNotKnown, kKernel) {
  void* coll = comm.Enqueue(0);
  void* first = Start(comm.context(), ChannelEvent(coll, 0, 1000));
  void* second = Start(comm.context(), ChannelEvent(coll, 1, 1000));
  RecordAndStopChannel(first, 2000);
  RecordAndStopChannel(second, 3000);
  void* never_stops = comm.Enqueue(0);
  Start(comm.context(), ChannelEvent(never_stops, 0, 4000));
  comm.Enqueue(0);  // no channel at all
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel), 1u);
  EXPECT_EQ(SumNs(measured), 2000u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kLost), 1u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kInvisible), 1u);
  EXPECT_EQ(Uncompleted(measured), 1u);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

// NCCL's adapter for API v4 leaves a point-to-point operation's number of channels to chance.
TEST_WITH_COMM(KernelTimingTest, MoreOrFewerChannelsThanSaid, kKernel) {
  void* fewer = comm.Enqueue(60);
  RecordAndStopChannel(Start(comm.context(), ChannelEvent(fewer, 0, 1000)), 2000);
  void* more = comm.Enqueue(1);
  void* first = Start(comm.context(), ChannelEvent(more, 0, 3000));
  void* second = Start(comm.context(), ChannelEvent(more, 1, 3000));
  RecordAndStopChannel(first, 4000);
  RecordAndStopChannel(second, 4000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationKernel), 1u);
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kLost), 1u);
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"after_close", 2}}));
}

TEST_WITH_COMM(KernelTimingTest, SixteenFailuresInSixtyFourEndTheTrust, kKernel) {
  NcclCommunicator sound(2);
  uint64_t now_ns = 0;
  const auto good = [&] {
    now_ns += 10000;
    RunChannels(comm, {{now_ns, now_ns + 1000}, {now_ns, now_ns + 1000}});
  };
  const auto bad = [&] {
    now_ns += 10000;
    RunChannels(comm, {{now_ns, now_ns + 1000}, {now_ns + 2000, now_ns + 3000}});
  };
  // Fifteen at any time in the last 64 are a burst ...
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 15; ++i) bad();
    for (int i = 0; i < 49; ++i) good();
  }
  EXPECT_EQ(Find(ReadSnapshot(), 1).kernel_trust, TrustState::kTrusted);
  EXPECT_EQ(Untimed(Find(ReadSnapshot(), 1), UntimedReason::kOverlap), 45u);
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kDurationKernel), 147u);
  // ... sixteen are drift.
  for (int i = 0; i < 16; ++i) bad();
  EXPECT_EQ(Find(ReadSnapshot(), 1).kernel_trust, TrustState::kChecksFailed);
  for (int i = 0; i < 100; ++i) good();
  sound.RunWithKernel(2, 1000, 2000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(Untimed(measured, UntimedReason::kOverlap), 61u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kUntrusted), 100u);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel), 147u);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionKernel), 308u);
  EXPECT_EQ(Find(snapshot, 2).kernel_trust, TrustState::kTrusted);
  EXPECT_EQ(Timed(Find(snapshot, 2), LatencyKind::kDurationKernel), 1u);
}

// One channel cannot show drift, so it neither ends the trust nor fills the 64.
TEST_WITH_COMM(KernelTimingTest, SingleChannelFailuresDoNotEndTheTrust, kKernel) {
  for (uint64_t i = 0; i < 100; ++i) RunChannels(comm, {{2000 + i, 1000 + i}});
  EXPECT_EQ(Find(ReadSnapshot(), 1).kernel_trust, TrustState::kTrusted);
}

TEST_IN_CHILD(KernelTimingTest, SelfSendEndsTheTrust, kKernel) {
  NcclCommunicator comm(1, 1);
  RunChannels(comm, {{1000, 2000}, {1000, 2000}});
  Stop(Start(comm.context(), P2pEvent("Send", 1, 0, 1)));  // to another rank
  EXPECT_EQ(Find(ReadSnapshot(), 1).kernel_trust, TrustState::kTrusted);
  Stop(Start(comm.context(), P2pEvent("Send", 1, 1, 1)));
  RunChannels(comm, {{3000, 4000}, {3000, 4000}});
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(measured.kernel_trust, TrustState::kSelfSend);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel), 1u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kUntrusted), 1u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kInvisible), 2u);
}

// A place is used again by another communicator: it starts with a clean record.
TEST_WITH_COMM(KernelTimingTest, TrustIsTheCommunicatorsOwn, kKernel) {
  Start(comm.context(), P2pEvent("Send", 0, 0, 1));
  comm.Finalize();
  NcclCommunicator next(2);
  RunChannels(next, {{10, 20}, {10, 20}});
  EXPECT_EQ(Find(ReadSnapshot(), 1).kernel_trust, TrustState::kSelfSend);
  EXPECT_EQ(Find(ReadSnapshot(), 2).kernel_trust, TrustState::kTrusted);
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 2), LatencyKind::kDurationKernel), 1u);
}

// Captured into a graph: parent is the call's handle of long ago, and the replays' channels come.
TEST_WITH_COMM(KernelTimingTest, ReplaysOfAGraph, kKernel) {
  void* call = Start(comm.context(), CallEvent("AllReduce", 1024, "ncclFloat32", true));
  ASSERT_NE(call, nullptr);
  Stop(call);
  for (uint64_t i = 0; i < 10; ++i) {
    void* coll = Start(comm.context(), CollEvent(call, i, 1));
    Stop(coll);
    RecordAndStopChannel(Start(comm.context(), ChannelEvent(coll, 0, 1000 * i + 1)),
                         1000 * i + 500);
  }
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Calls(Find(snapshot, 1)), 1u);
  EXPECT_TRUE(Find(snapshot, 1).calls[0].captured);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationKernel), 10u);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

}  // namespace
}  // namespace nccl_pulse
