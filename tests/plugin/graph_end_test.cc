// What is left of a CUDA graph that is gone: nothing of it is in flight, whatever its stamps said
// last.
#include <gtest/gtest.h>

#include "plugin/cuda/stamp_plan.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// Of so many calls, each with a launch.
FakeCuda::Graph CaptureGraph(FakeCuda& gpu, StreamCommunicator& comm, uint32_t calls) {
  gpu.BeginCapture(comm.stream());
  for (uint32_t i = 0; i < calls; ++i) {
    void* group = comm.StartGroup(true);
    const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096, true);
    comm.Launch(group, 0);
    comm.Report(call);
    comm.StopGroup(group);
  }
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  return gpu.CapturedGraph(comm.stream());
}

// The last stamp's count may stay one behind (stamp_code.h), and no later passage puts that right.
TEST_WITH_GPU(GraphEnd, GraphThatIsGoneHasNothingInFlight) {
  StreamCommunicator comm(gpu, 1);
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
