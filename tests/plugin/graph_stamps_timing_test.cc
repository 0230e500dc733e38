// Which launches of replays are timed.
#include <gtest/gtest.h>

#include "plugin/cuda/graph_stamps.h"
#include "tests/plugin/graph_job.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

TEST_WITH_GPU(GraphStamps, LaunchesOfReplaysAreTimed, kAuto) {
  StreamCommunicator comm(gpu, 1);
  gpu.BeginCapture(comm.stream());
  for (uint32_t i = 0; i < kPairSpacing; ++i) CaptureCall(comm);
  CaptureCall(comm, "AllGather", 100);
  CaptureCall(comm);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  FakeCuda::Graph graph = gpu.CapturedGraph(comm.stream());
  const uint64_t behind = kPairSpacing + 3;  // nodes: two stamps and the launch
  const auto timed = [&comm] { return Timed(comm.Read(), LatencyKind::kDurationGraph); };
  gpu.Replay(graph, 0, behind);
  gpu.Advance(50000);
  gpu.Replay(graph, behind);
  WaitForPoll();
  WaitForPoll();
  EXPECT_EQ(timed(), 1u);  // once, however often it is looked at
  // The next replay is between the two: neither its time nor a mixed one.
  gpu.Advance(1000000);
  gpu.Replay(graph, 0, behind);
  WaitForPoll();
  EXPECT_EQ(timed(), 1u);
  gpu.Advance(30000);
  gpu.Replay(graph, behind);
  WaitForPoll();
  const CommunicatorSnapshot read = comm.Read();
  for (const LatencySnapshot& latency : read.latencies) {
    if (latency.kind != LatencyKind::kDurationGraph) continue;
    EXPECT_EQ(latency.op, "AllGather");
    EXPECT_EQ(latency.histogram.Count(), 2u);
    EXPECT_EQ(latency.histogram.sum_ns, 80000u);
    EXPECT_EQ(latency.bytes, 200u);
  }
  EXPECT_EQ(timed(), 2u);
  EXPECT_EQ(Ignored(ReadSnapshot()), 0u);
}

// A launch of a group has no time that is an operation's.
TEST_WITH_GPU(GraphStamps, LaunchOfSeveralCallsIsNotTimed, kAuto) {
  StreamCommunicator comm(gpu, 1);
  gpu.BeginCapture(comm.stream());
  for (uint32_t i = 0; i < kPairSpacing; ++i) CaptureCall(comm);
  void* group = comm.StartGroup(true);
  comm.MakeCall(group, "Send", 100, true);
  comm.MakeCall(group, "Recv", 100, true);
  comm.Launch(group, 0);
  comm.StopGroup(group);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  FakeCuda::Graph graph = gpu.CapturedGraph(comm.stream());
  EXPECT_EQ(gpu.Nodes(graph), "s" + Kernels(60) + "sks");
  gpu.Replay(graph, 0, kPairSpacing + 3);
  gpu.Advance(50000);
  gpu.Replay(graph, kPairSpacing + 3);
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays, 1u);
  EXPECT_EQ(Timed(comm.Read(), LatencyKind::kDurationGraph), 0u);
  EXPECT_EQ(Replayed(comm.Read(), "Send").operations, 1u);
}

// What NCCL does wrong elsewhere: a stop that comes twice, late or never.
TEST_WITH_GPU(GraphStamps, StopsThatAreWrongAddNothing, kAuto) {
  StreamCommunicator comm(gpu, 1);
  gpu.BeginCapture(comm.stream());
  for (uint32_t i = 0; i < kPairSpacing; ++i) CaptureCall(comm);
  void* group = comm.StartGroup(true);
  comm.MakeCall(group, "AllReduce", 100, true);
  void* launch = comm.StartLaunch(group);
  gpu.Launch(comm.stream(), 0);
  ASSERT_NE(launch, nullptr);
  comm.StopLaunch(launch);
  comm.StopLaunch(launch);
  comm.StopGroup(group);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  comm.StopLaunch(launch);
  EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(comm.stream())), "s" + Kernels(60) + "sks");
  EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kRepeatedStop), 2u);
  comm.Finalize();
  comm.StopLaunch(launch);
  EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kStaleHandle), 1u);
}

}  // namespace
}  // namespace nccl_pulse
