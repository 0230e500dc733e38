// What a rank says of how far its GPU has come in the replays of its graphs.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plugin/cuda/graph_stamps.h"
#include "tests/plugin/graph_job.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kCalls = kPairSpacing + 5;
// Nodes up to and with each stamp of a graph of so many calls.
constexpr uint64_t kHead = 1;
constexpr uint64_t kFront = kHead + kPairSpacing + 1;
constexpr uint64_t kRear = kFront + 2;

GraphPosition PositionOf(const StreamCommunicator& comm) {
  WaitForPoll();
  return comm.Read().graph_position;
}

void ExpectPosition(const GraphPosition& position, uint32_t graph, uint32_t passed, uint32_t before,
                    uint32_t until, uint32_t calls = kCalls) {
  EXPECT_EQ(position.graph, graph);
  EXPECT_EQ(position.passed, passed);
  EXPECT_EQ(position.calls_before, before);
  EXPECT_EQ(position.calls_until, until);
  EXPECT_EQ(position.calls, calls);
}

TEST_WITH_STREAM(GraphPosition, IsBehindTheStampThatWasPassedLast) {
  FakeCuda::Graph graph = CaptureGraph(gpu, comm, kCalls);
  ExpectPosition(PositionOf(comm), 0, 0, 0, 0, 0);
  EXPECT_EQ(comm.Read().graph_position.captures, 1u);
  EXPECT_EQ(comm.Read().graph_position.followed, 1u);
  gpu.Replay(graph, 0, kHead);
  ExpectPosition(PositionOf(comm), 1, 1, 0, kPairSpacing);
  EXPECT_EQ(comm.Read().graph_position.stamps, 3u);
  EXPECT_TRUE(comm.Read().graph_position.has_head);
  EXPECT_EQ(comm.Read().graph_replays, 1u);
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 1u);
  gpu.Replay(graph, kHead, kFront - kHead);
  ExpectPosition(PositionOf(comm), 1, 2, kPairSpacing, kPairSpacing + 1);
  gpu.Replay(graph, kFront, kRear - kFront);
  ExpectPosition(PositionOf(comm), 1, 3, kPairSpacing + 1, kCalls);
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 0u);
  gpu.Advance(1);
  gpu.Replay(graph, 0, kHead);
  ExpectPosition(PositionOf(comm), 1, 1, 0, kPairSpacing);
  EXPECT_EQ(comm.Read().graph_replays, 2u);
}

TEST_WITH_STREAM(GraphPosition, IsInTheGraphThatMovedLast) {
  FakeCuda::Graph first = CaptureGraph(gpu, comm, kCalls);
  CaptureGraph(gpu, comm, kFirstStamp);  // too short for a stamp
  FakeCuda::Graph third = CaptureGraph(gpu, comm, kFirstStamp + 1);
  gpu.Replay(third);
  ExpectPosition(PositionOf(comm), 3, 1, 0, kFirstStamp + 1, kFirstStamp + 1);
  EXPECT_EQ(comm.Read().graph_position.captures, 3u);
  EXPECT_EQ(comm.Read().graph_position.followed, 2u);
  gpu.Advance(kMs);
  gpu.Replay(first, 0, kHead);
  ExpectPosition(PositionOf(comm), 1, 1, 0, kPairSpacing);
}

// Each communicator's calls are counted for themselves, where they are launched.
TEST_WITH_GPU(GraphPosition, CountsTheCallsOfItsCommunicator) {
  StreamCommunicator a(gpu, 1);
  StreamCommunicator b(gpu, 2, a.gpu_context());
  b.UseStream(a.stream());
  gpu.BeginCapture(a.stream());
  for (uint32_t i = 0; i < 40; ++i) CaptureCall(a);
  for (uint32_t i = 0; i < 25; ++i) CaptureCall(b);
  EXPECT_TRUE(gpu.EndCapture(a.stream()));
  gpu.Replay(gpu.CapturedGraph(a.stream()), 0, kFront);
  ExpectPosition(PositionOf(a), 1, 2, 40, 40, 40);
  ExpectPosition(PositionOf(b), 1, 2, 20, 21, 25);
  EXPECT_EQ(b.Read().graph_position.captures, 1u);
}

// A launch of several calls: all of them are behind a stamp in front of it.
TEST_WITH_STREAM(GraphPosition, CallsOfAGroupAreLaunchedTogether) {
  gpu.BeginCapture(comm.stream());
  for (uint32_t i = 0; i < kPairSpacing; ++i) CaptureCall(comm);
  void* group = comm.StartGroup(true);
  for (int i = 0; i < 3; ++i) comm.MakeCall(group, "AllReduce", 4096, true);
  comm.Launch(group, 0);
  comm.StopGroup(group);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  gpu.Replay(gpu.CapturedGraph(comm.stream()), 0, kFront);
  ExpectPosition(PositionOf(comm), 1, 2, kPairSpacing, kPairSpacing + 3, kPairSpacing + 3);
}

TEST_WITH_STREAM(GraphPosition, GraphWithSeveralHeadsHasAStampInFrontOfThem) {
  FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1, StampContext::kMostRoots);
  EXPECT_EQ(gpu.Nodes(graph), "s" + std::string(kFirstStamp + 1, 'k'));
}

TEST_WITH_STREAM(GraphPosition, GraphWithManyHeadsHasItsFirstStampWithin) {
  FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1, StampContext::kMostRoots + 1);
  EXPECT_EQ(gpu.Nodes(graph), std::string(kFirstStamp, 'k') + "sk");
  gpu.Replay(graph);
  ExpectPosition(PositionOf(comm), 1, 1, kFirstStamp, kFirstStamp + 1, kFirstStamp + 1);
  EXPECT_FALSE(comm.Read().graph_position.has_head);
}

// A stamp without its edges may count: nobody else is given its position.
TEST_WITH_STREAM(GraphPosition, HeadThatIsRefusedIsTheLast) {
  gpu.Fail("cuGraphAddDependencies", 1);
  CaptureGraph(gpu, comm, kCalls);
  gpu.StopFailing();
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, kCalls)), std::string(kCalls, 'k'));
  WaitForPoll();
  EXPECT_EQ(ReadSnapshot().graph_captures[static_cast<int>(CaptureFate::kRefused)], 1u);
  EXPECT_EQ(comm.Read().graph_position.followed, 0u);
}

// The next communicator of the same place in the table begins anew.
TEST_WITH_GPU(GraphPosition, IsOfOneCommunicator) {
  StreamCommunicator first(gpu, 1);
  gpu.Replay(CaptureGraph(gpu, first, kCalls));
  EXPECT_EQ(PositionOf(first).captures, 1u);
  first.Finalize();
  StreamCommunicator second(gpu, 2, first.gpu_context());
  gpu.Advance(kMs);
  gpu.Replay(CaptureGraph(gpu, second, kCalls), 0, kHead);
  ExpectPosition(PositionOf(second), 1, 1, 0, kPairSpacing);
  EXPECT_EQ(second.Read().graph_position.captures, 1u);
}

}  // namespace
}  // namespace nccl_pulse
