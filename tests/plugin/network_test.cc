// Network steps: what they moved, where they waited, and when NCCL is asked for them at all.
//
// Times are checked without a limit of their own: a wait is at least what passed between the two
// callbacks that bound it, and at most what passed from before the first to after the second.
#include <gtest/gtest.h>

#include "tests/plugin/harness.h"
#include "tests/plugin/network_job.h"

namespace nccl_pulse {
namespace {

TEST_WITH_COMM(NetworkTest, EachWaitOfASend, kAlways) {
  EXPECT_TRUE(IsOn());
  void* proxy = StartProxyOp(comm, comm.Enqueue());
  Timeline line;
  void* step = nullptr;
  line.Make([&] { step = StartStep(comm, proxy); });
  line.Make([&] { RecordStep(step, abi::kStateProxyStepSendGpuWait, 1); });
  line.Make([&] { RecordStep(step, abi::kStateProxyStepSendPeerWait, 2); });
  line.Make([&] { RecordStep(step, abi::kStateProxyStepSendPeerWait, 3); });  // polled again
  line.Make([&] { RecordStep(step, abi::kStateProxyStepSendWait, 4096); });
  line.Make([&] { Stop(step); });
  line.Make([&] { Stop(proxy); });
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(measured.network_bytes, (Directions{4096, 0}));
  EXPECT_GE(measured.network_moved_realtime_ns, snapshot.start_realtime_ns);
  line.ExpectWithin(Wait(measured, NetworkWait::kSendGpu), 1, 2, "gpu");
  line.ExpectWithin(Wait(measured, NetworkWait::kSendPeer), 2, 4, "peer");
  line.ExpectWithin(Wait(measured, NetworkWait::kSendWire), 4, 5, "wire");
  for (NetworkWait wait :
       {NetworkWait::kReceiveWire, NetworkWait::kReceiveFlush, NetworkWait::kReceiveGpu}) {
    EXPECT_EQ(Wait(measured, wait), 0u);
  }
  ASSERT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 1u);
  for (const LatencySnapshot& latency : measured.latencies) {
    if (latency.kind != LatencyKind::kDurationNetwork) continue;
    line.ExpectWithin(latency.histogram.sum_ns, 2, 6, "duration");
    EXPECT_EQ(latency.bytes, NcclCommunicator::kBytes);
    EXPECT_EQ(latency.bus_bytes, NcclCommunicator::kBytes);
  }
  EXPECT_EQ(snapshot.callbacks[static_cast<size_t>(CallbackKind::kStep)], 6u);
  EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
}

TEST_WITH_COMM(NetworkTest, EachWaitOfAReceive, kAlways) {
  Timeline line;
  void* step = StartStep(comm, StartProxyOp(comm, comm.Enqueue()));
  line.Make([&] { RecordStep(step, abi::kStateProxyStepRecvWait, 0); });
  line.Make([&] { RecordStep(step, abi::kStateProxyStepRecvFlushWait, 512); });
  line.Make([&] { RecordStep(step, abi::kStateProxyStepRecvGpuWait, 0); });
  line.Make([&] { Stop(step); });
  const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
  line.ExpectWithin(Wait(measured, NetworkWait::kReceiveWire), 0, 1, "wire");
  line.ExpectWithin(Wait(measured, NetworkWait::kReceiveFlush), 1, 2, "flush");
  line.ExpectWithin(Wait(measured, NetworkWait::kReceiveGpu), 2, 3, "gpu");
}

// The first to move data among several steps of several ProxyOps begins the duration, the last
// ProxyOp ends it; an operation without steps has none.
TEST_WITH_COMM(NetworkTest, DurationOverAllProxyOps, kAlways) {
  void* coll = comm.Enqueue();
  void* sending = StartProxyOp(comm, coll);
  void* receiving = StartProxyOp(comm, coll);
  void* receive = StartStep(comm, receiving);
  RecordStep(receive, abi::kStateProxyStepRecvWait, 0);
  void* send = StartStep(comm, sending);
  Timeline line;
  line.Make([&] { RecordStep(send, abi::kStateProxyStepSendWait, 8); });  // without 8 and 20
  line.Make([&] { RecordStep(receive, abi::kStateProxyStepRecvFlushWait, 8); });
  RecordStep(receive, abi::kStateProxyStepRecvGpuWait, 0);
  Stop(receive);
  Stop(receiving);
  Stop(send);
  line.Make([&] { Stop(sending); });
  comm.RunWithProxy();
  comm.Finalize();
  const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
  EXPECT_EQ(measured.network_bytes, (Directions{8, 8}));
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), 2u);
  ASSERT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 1u);
  for (const LatencySnapshot& latency : measured.latencies) {
    if (latency.kind != LatencyKind::kDurationNetwork) continue;
    line.ExpectWithin(latency.histogram.sum_ns, 0, 2, "duration");
  }
}

// A slot's next operation is not timed by its last one's steps.
TEST_WITH_COMM(NetworkTest, DurationIsOfItsOwnOperation, kAlways) {
  constexpr uint64_t kOperations = 2000;  // the places are used several times over
  for (uint64_t i = 0; i < kOperations; ++i) {
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    if (i % 2 == 0) RunSend(comm, proxy, 1);
    Stop(proxy);
  }
  comm.Finalize();
  const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), kOperations);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationNetwork), kOperations / 2);
  EXPECT_EQ(measured.network_bytes, (Directions{kOperations / 2, 0}));
}

// The GPU's own timestamps are the durations then; bytes and waits are still of use.
TEST(NetworkTest, WithKernelTiming) {
  Environment environment = kAlways;
  environment["NCCL_PULSE_TIMING"] = "kernel";
  RunInChild(environment, [] {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    RunReceive(comm, proxy, 7);
    Stop(proxy);
    comm.Finalize();
    const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
    EXPECT_EQ(measured.network_bytes, (Directions{0, 7}));
    EXPECT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 0u);
  });
}

// NCCL starts a receive again when the network has no request to give, and forgets the old handle.
TEST_WITH_COMM(NetworkTest, RestartedReceive, kAlways) {
  void* proxy = StartProxyOp(comm, comm.Enqueue());
  for (int i = 0; i < 5; ++i) EXPECT_NE(StartStep(comm, proxy), nullptr);
  RunReceive(comm, proxy, 100);
  Stop(proxy);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 100}));
  EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
}

}  // namespace
}  // namespace nccl_pulse
