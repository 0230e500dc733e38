// An executable graph that is updated with a later capture (cudaGraphExecUpdate), as an application does
// whose buffers or sizes have changed: what it runs from then on is the later capture's.
#include "plugin/cuda/stamp_plan.h"
#include "tests/plugin/graph_job.h"
#include "tests/plugin/work_job.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kCallsOfGraph = kPairSpacing + 1;  // with several stamps

FakeCuda::Graph Capture(FakeCuda& gpu, StreamCommunicator& comm, const char* op, uint64_t bytes) {
  gpu.BeginCapture(comm.stream());
  for (uint32_t i = 0; i < kCallsOfGraph; ++i) CaptureCall(comm, op, bytes);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  return gpu.CapturedGraph(comm.stream());
}

TEST_WITH_STREAM(GraphUpdate, ReplaysAreThoseOfTheLaterCapture) {
  const FakeCuda::Graph first = Capture(gpu, comm, "AllReduce", kBytes);
  const FakeCuda::Graph executable = gpu.Instantiate(first);
  gpu.DestroyGraph(first);
  for (int i = 0; i < 3; ++i) gpu.Replay(executable);
  WaitForPoll();
  uint64_t replays = 3;
  uint64_t gathered = 0;
  for (uint64_t bytes = kBytes; bytes <= 4 * kBytes; bytes *= 2) {
    const FakeCuda::Graph next = Capture(gpu, comm, "AllGather", bytes);
    gpu.Update(executable, next);
    gpu.DestroyGraph(next);
    for (int i = 0; i < 5; ++i) gpu.Replay(executable);
    WaitForPoll();
    replays += 5;
    gathered += 5 * kCallsOfGraph * bytes;
    const CommunicatorSnapshot read = comm.Read();
    EXPECT_EQ(read.graph_replays, replays);
    EXPECT_EQ(read.graph_replays_in_flight, 0u);
    EXPECT_EQ(Replayed(read, "AllReduce").operations, 3u * kCallsOfGraph);
    EXPECT_EQ(Replayed(read, "AllReduce").bytes, 3u * kCallsOfGraph * kBytes);
  }
  uint64_t operations = 0;
  uint64_t bytes = 0;
  for (const ReplayedCallsSnapshot& replayed : comm.Read().replayed) {
    if (replayed.op != "AllGather") continue;
    operations += replayed.operations;
    bytes += replayed.bytes;
  }
  EXPECT_EQ(operations, 15u * kCallsOfGraph);
  EXPECT_EQ(bytes, gathered);
  gpu.DestroyGraph(executable);
}

// The graph that it was updated with lives on, and is instantiated a second time.
TEST_WITH_STREAM(GraphUpdate, ExecutablesOfOneCaptureAreCountedTogether) {
  const FakeCuda::Graph first = Capture(gpu, comm, "AllReduce", kBytes);
  const FakeCuda::Graph second = Capture(gpu, comm, "AllGather", kBytes);
  const FakeCuda::Graph updated = gpu.Instantiate(first);
  const FakeCuda::Graph other = gpu.Instantiate(second);
  gpu.Update(updated, second);
  gpu.Replay(updated);
  gpu.Replay(other);
  gpu.DestroyGraph(updated);
  gpu.Replay(other);
  WaitForPoll();
  EXPECT_EQ(Replayed(comm.Read(), "AllGather").operations, 3u * kCallsOfGraph);
  EXPECT_EQ(Replayed(comm.Read(), "AllReduce").operations, 0u);
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 0u);
}

// A replay of before the update is in flight: the later capture's are told from it.
TEST_WITH_STREAM(GraphUpdate, AReplayInFlightIsThatOfTheEarlierCapture) {
  const FakeCuda::Graph first = Capture(gpu, comm, "AllReduce", kBytes);
  const FakeCuda::Graph executable = gpu.Instantiate(first);
  gpu.Replay(executable);
  gpu.Replay(executable, 0, kFirstStamp + 2);  // past the first stamp
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 1u);
  const FakeCuda::Graph second = Capture(gpu, comm, "AllGather", kBytes);
  gpu.Update(executable, second);
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 1u);
  gpu.Replay(first, kFirstStamp + 2);  // its rest
  gpu.Replay(executable);
  WaitForPoll();
  EXPECT_EQ(comm.Read().graph_replays, 3u);
  EXPECT_EQ(comm.Read().graph_replays_in_flight, 0u);
  EXPECT_EQ(Replayed(comm.Read(), "AllReduce").operations, 2u * kCallsOfGraph);
  EXPECT_EQ(Replayed(comm.Read(), "AllGather").operations, kCallsOfGraph);
}

// Short graphs have no stamps. Which capture an executable runs, the counter does not tell, and need not.
TEST_WITH_JOB(GraphUpdateTest, ShortGraphsAreCountedByTheCounter) {
  job.Prove();
  job.Capture();
  const FakeCuda::Graph executable = gpu.Instantiate(gpu.CapturedGraph(job.comm().stream()));
  for (int i = 0; i < 4; ++i) {
    job.Capture();
    gpu.Update(executable, gpu.CapturedGraph(job.comm().stream()));
    for (int k = 0; k < 10; ++k) {
      gpu.Replay(executable);
      job.block().Finish(i + 1);
    }
  }
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);
  EXPECT_TRUE(job.work().are_operations_known);
  EXPECT_EQ(job.work().operations, 40u);
}

}  // namespace
}  // namespace nccl_pulse
