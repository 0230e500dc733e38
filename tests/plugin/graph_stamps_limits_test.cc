// Graphs that come and go, that find no room, or that the driver refuses to stamp.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "plugin/cuda/graph_stamps.h"
#include "tests/plugin/graph_job.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// Applications that capture anew at each step.
TEST_WITH_STREAM(GraphStamps, GraphsThatAreGoneMakeRoom) {
  uint64_t replays = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<FakeCuda::Graph> graphs;
    for (uint32_t i = 0; i < GraphStamps::kMostRecords; ++i) {
      graphs.push_back(CaptureGraph(gpu, comm, kFirstStamp + 1));
      ASSERT_EQ(gpu.Nodes(graphs.back()), kWithHead);
      gpu.Replay(graphs.back());
      ++replays;
    }
    for (FakeCuda::Graph graph : graphs) gpu.DestroyGraph(graph);
    WaitForPoll();
    AdvanceClockAndPoll(10 * kSecond);
  }
  EXPECT_EQ(comm.Read().graph_replays, replays);
  EXPECT_EQ(Captures(CaptureFate::kFollowed), 3u * GraphStamps::kMostRecords);
  EXPECT_EQ(Captures(CaptureFate::kNoRoom), 0u);
}

TEST_WITH_STREAM(GraphStamps, PlacementDoesNotDependOnRoom) {
  for (uint32_t i = 0; i < GraphStamps::kMostRecords; ++i) {
    CaptureGraph(gpu, comm, kFirstStamp + 1);
  }
  FakeCuda::Graph late = CaptureGraph(gpu, comm, kFirstStamp + 1);
  EXPECT_EQ(gpu.Nodes(late), kWithHead);
  gpu.Replay(late);
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays, 0u);
  EXPECT_EQ(Captures(CaptureFate::kNoRoom), 1u);
}

// The graph's end would not be known.
TEST_WITH_STREAM(GraphStamps, GraphThatCannotBeWatchedIsNotCounted) {
  gpu.Fail("cuGraphRetainUserObject", 801);
  for (uint32_t i = 0; i < 2 * GraphStamps::kMostRecords; ++i) {
    if (i % 200 == 0) WaitForPoll();
    if (i % 200 == 0) AdvanceClock(10 * kSecond);
    FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1);
    ASSERT_EQ(gpu.Nodes(graph), kWithHead);
    gpu.Replay(graph);
  }
  gpu.StopFailing();
  WaitForPoll();
  AdvanceClockAndPoll(10 * kSecond);
  gpu.Replay(CaptureGraph(gpu, comm, kFirstStamp + 1));
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays, 1u);
  EXPECT_EQ(Captures(CaptureFate::kNoRoom), 2u * GraphStamps::kMostRecords);
}

TEST_WITH_GPU(GraphStamps, DriverThatCannotHasNoneForGood, {"NCCL_PULSE_LOG_LEVEL", "info"}) {
  gpu.Fail("cuModuleLoadData", 218);
  StreamCommunicator comm(gpu, 1);
  StreamCommunicator other(gpu, 2, comm.gpu_context());
  int lines = 0;
  for (const std::string& line : TakeLog()) {
    lines += line.find("replays of CUDA graphs are not followed") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
  gpu.StopFailing();
  StreamCommunicator third(gpu, 3, comm.gpu_context());
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
}

TEST_WITH_STREAM(GraphStamps, LaunchThatIsRefusedIsTheLast) {
  gpu.Fail("cuGraphAddKernelNode_v2", 1);
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
  gpu.StopFailing();
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
  WaitForPoll();
  EXPECT_EQ(Captures(CaptureFate::kRefused), 1u);
}

// By an application's mistake on another thread: the next capture is as if nothing had been.
TEST_WITH_STREAM(GraphStamps, CaptureThatEndsMeanwhileIsNotTheLast) {
  gpu.Fail("cuGraphAddKernelNode_v2", 901);  // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
  CaptureGraph(gpu, comm, kFirstStamp + 1);
  gpu.StopFailing();
  FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1);
  EXPECT_EQ(gpu.Nodes(graph), kWithHead);
  WaitForPoll();
  EXPECT_EQ(Captures(CaptureFate::kRefused), 0u);
}

// Threads that make many small graphs while another one makes a long one.
TEST_WITH_STREAM(GraphStamps, LongCaptureKeepsItsPositionBesideManyOthers) {
  StreamCommunicator other(gpu, 2, comm.gpu_context());
  gpu.BeginCapture(comm.stream());
  for (uint32_t i = 0; i <= kFirstStamp; ++i) {
    CaptureCall(comm);
    for (int k = 0; k < 20; ++k) CaptureGraph(gpu, other, 1);
  }
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  EXPECT_EQ(gpu.Nodes(gpu.CapturedGraph(comm.stream())), kWithHead);
}

TEST_WITH_GPU(GraphStamps, CodeIsLoadedOnceAndEndsNoCapture) {
  FakeCuda::Context context = gpu.CreateContext(0);
  FakeCuda::Stream captured = gpu.CreateStream(context);
  gpu.BeginCapture(captured);
  StreamCommunicator comm(gpu, 1, context);
  StreamCommunicator other(gpu, 2, context);
  EXPECT_TRUE(gpu.EndCapture(captured));
  EXPECT_EQ(gpu.Calls("cuModuleLoadData"), 1u);
  StreamCommunicator elsewhere(gpu, 3, 1);
  EXPECT_EQ(gpu.Calls("cuModuleLoadData"), 2u);
  const std::string nodes = kWithHead;
  gpu.MakeCurrent(context);
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, kFirstStamp + 1)), nodes);
  gpu.MakeCurrent(elsewhere.gpu_context());
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, elsewhere, kFirstStamp + 1)), nodes);
}

TEST_WITH_STREAM(GraphStamps, ContextThatWasResetHasNoneUntilItIsPreparedAgain) {
  gpu.ResetContext(comm.gpu_context());
  EXPECT_EQ(gpu.Nodes(CaptureGraph(gpu, comm, 70)), Kernels(70));
  StreamCommunicator later(gpu, 2, comm.gpu_context());
  FakeCuda::Graph graph = CaptureGraph(gpu, later, kFirstStamp + 1);
  EXPECT_EQ(gpu.Nodes(graph), kWithHead);
  gpu.Replay(graph);
  WaitForPoll();
  EXPECT_EQ(later.Read().graph_replays, 1u);
}

// As threads of one process that each have a GPU do.
TEST_WITH_GPU(GraphStamps, ThreadsCaptureBesideEachOther) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 30;
  std::vector<std::unique_ptr<StreamCommunicator>> comms;
  for (int i = 0; i < kThreads; ++i) {
    comms.push_back(std::make_unique<StreamCommunicator>(gpu, 1 + i, i));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&gpu, &comm = *comms[i]] {
      gpu.MakeCurrent(comm.gpu_context());
      for (int round = 0; round < kRounds; ++round) {
        FakeCuda::Graph graph = CaptureGraph(gpu, comm, kFirstStamp + 1);
        EXPECT_EQ(gpu.Nodes(graph), kWithHead);
        gpu.Replay(graph);
        gpu.Replay(graph);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  WaitForPoll();
  for (const auto& comm : comms) EXPECT_EQ(comm->Read().graph_replays, 2u * kRounds);
}

// The last stamp's count may stay one behind (stamp_code.h), and no later passage puts that right.
TEST_WITH_STREAM(GraphStamps, GraphThatIsGoneHasNothingInFlight) {
  FakeCuda::Graph graph = CaptureGraph(gpu, comm, kPairSpacing + 1);
  gpu.Replay(graph);
  gpu.Replay(graph, 0, kFirstStamp + 2);  // past the first stamp, not the last
  WaitForPoll();
  ASSERT_EQ(comm.Read().graph_replays_in_flight, 1u);
  gpu.DestroyGraph(graph);
  WaitForPoll();
  AdvanceClockAndPoll(kSecond);
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 0u);
  EXPECT_EQ(comm.Read().graph_replays, 2u);
}

}  // namespace
}  // namespace nccl_pulse
