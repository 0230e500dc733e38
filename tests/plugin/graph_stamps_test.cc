// Stamps in CUDA graphs: where they stand, what they count, which launches of replays they time, and
// that nothing of the application depends on them.
#include "plugin/cuda/graph_stamps.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/plugin/graph_job.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

TEST_WITH_STREAM(GraphStamps, AreNotMadeWhereTheyAreOff, {"NCCL_PULSE_GRAPHS", "off"}) {
  FakeCuda::Graph graph = CaptureGraph(gpu, comm, 70);
  EXPECT_EQ(gpu.Nodes(graph), Kernels(70));
  EXPECT_EQ(gpu.Calls("cuModuleLoadData"), 0u);
  EXPECT_EQ(gpu.Calls("cuStreamGetCaptureInfo_v2"), 0u);
}

TEST_WITH_STREAM(GraphStamps, StandAtTheSamePositionsOfEachCapture) {
  const std::string nodes = "s" + Kernels(60) + "sks" + Kernels(59) + "sks" + Kernels(4);
  const int calls = 125;
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, calls)), nodes);
  // Whatever was captured, called or sampled before.
  CaptureGraph(gpu, comm, 7);
  TimeEveryCall();
  for (int i = 0; i < 150; ++i) comm.Run();
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, calls)), nodes);
  StreamCommunicator other(gpu, 2, comm.gpu_context());
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, other, calls)), nodes);
}

TEST_WITH_GPU(GraphStamps, CapturesAtTheSameTimeHaveTheirOwnPositions) {
  StreamCommunicator a(gpu, 1);
  StreamCommunicator b(gpu, 2, a.gpu_context());
  gpu.BeginCapture(a.stream());
  gpu.BeginCapture(b.stream());
  for (uint32_t i = 0; i <= kFirstStamp; ++i) {
    CaptureCall(a);
    if (i % 2 == 0) CaptureCall(b);
  }
  EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(a.stream())), kWithHead);
  EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(b.stream())), Kernels(kFirstStamp / 2 + 1));
  EXPECT_TRUE(gpu.EndCapture(a.stream()));
  EXPECT_TRUE(gpu.EndCapture(b.stream()));
}

TEST_WITH_STREAM(GraphStamps, GraphOfFewLaunchesHasNone) {
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, kFirstStamp)), Kernels(kFirstStamp));
  WaitForPoll();
  EXPECT_EQ(Captures(CaptureFate::kSeen), 1u);
  EXPECT_EQ(Captures(CaptureFate::kFollowed), 0u);
}

TEST_WITH_STREAM(GraphStamps, EveryReplayIsCounted) {
  gpu.BeginCapture(comm.stream());
  for (int i = 0; i < 30; ++i) CaptureCall(comm);
  for (int i = 0; i < 12; ++i) CaptureCall(comm, "AllGather", 100);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  FakeCuda::Graph graph = gpu.CapturedGraph(comm.stream());
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays, 0u);
  for (int i = 0; i < 1000; ++i) gpu.Replay(graph);
  WaitForPoll();
  for (int i = 0; i < 77; ++i) gpu.Replay(graph);
  WaitForPoll();
  const CommunicatorSnapshot read = comm.Read();
  EXPECT_EQ(read.graph_replays, 1077u);
  EXPECT_EQ(read.graph_replays_in_flight, 0u);
  EXPECT_EQ(Replayed(read, "AllReduce").operations, 30u * 1077);
  EXPECT_EQ(Replayed(read, "AllReduce").bytes, 30u * 1077 * kBytes);
  EXPECT_EQ(Replayed(read, "AllGather").operations, 12u * 1077);
  EXPECT_EQ(Calls(read), 42u);  // what was called, as before
  EXPECT_EQ(Captures(CaptureFate::kFollowed), 1u);
}

TEST_WITH_GPU(GraphStamps, CommunicatorsOfOneGraphShareItsReplays) {
  StreamCommunicator a(gpu, 1);
  StreamCommunicator b(gpu, 2, a.gpu_context());
  b.UseStream(a.stream());
  gpu.BeginCapture(a.stream());
  CaptureCall(b);
  for (uint32_t i = 0; i < kFirstStamp; ++i) CaptureCall(a);
  CaptureCall(b, "Broadcast");
  EXPECT_TRUE(gpu.EndCapture(a.stream()));
  FakeCuda::Graph graph = gpu.CapturedGraph(a.stream());
  for (int i = 0; i < 9; ++i) gpu.Replay(graph);
  WaitForPoll();
  EXPECT_EQ(a.Read().graph_replays, 9u);
  EXPECT_EQ(Replayed(a.Read(), "AllReduce").operations, 9u * kFirstStamp);
  EXPECT_EQ(b.Read().graph_replays, 9u);
  EXPECT_EQ(Replayed(b.Read(), "AllReduce").operations, 9u);
  EXPECT_EQ(Replayed(b.Read(), "Broadcast").operations, 9u);
}

TEST_WITH_STREAM(GraphStamps, ReplayThatStandsIsInFlight) {
  FakeCuda::Graph graph = CaptureGraph(gpu, comm, 70);
  gpu.Replay(graph);
  gpu.Replay(graph, 0, kFirstStamp + 2);  // past the first stamp
  WaitForPoll();
  const CommunicatorSnapshot standing = comm.Read();
  EXPECT_EQ(standing.graph_replays, 2u);
  EXPECT_EQ(standing.graph_replays_in_flight, 1u);
  AdvanceClockAndPoll(60 * kSecond);
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 1u);
  EXPECT_NEAR(static_cast<double>(comm.Read().graph_moved_realtime_ns),
              static_cast<double>(standing.graph_moved_realtime_ns), 1e9);
  gpu.Replay(graph, kFirstStamp + 2);
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 0u);
  EXPECT_GT(comm.Read().graph_moved_realtime_ns,
            standing.graph_moved_realtime_ns + static_cast<int64_t>(50 * kSecond));
}

TEST_WITH_STREAM(GraphStamps, LaunchesOfReplaysAreTimed) {
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
TEST_WITH_STREAM(GraphStamps, LaunchOfSeveralCallsIsNotTimed) {
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
TEST_WITH_STREAM(GraphStamps, StopsThatAreWrongAddNothing) {
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

// A graph never has more than the budget allows, whatever its length.
TEST(GraphStamps, BudgetHolds) {
  uint32_t stamps = 0;
  for (uint32_t launch = 0; launch < 2000; ++launch) {
    stamps += StampsDueAt(launch) == StampsDue::kPair ? 2 : 0;
    stamps += StampsDueAt(launch) == StampsDue::kHead ? 1 : 0;
    EXPECT_LE(stamps * 2.0, (launch + 1) * 5.8 * 0.02) << launch;  // us
  }
  EXPECT_EQ(stamps, kMostStamps);
}

}  // namespace
}  // namespace nccl_pulse
