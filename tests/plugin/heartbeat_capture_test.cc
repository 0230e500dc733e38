// While streams are captured into CUDA graphs, nothing of the capture is touched.
#include <gtest/gtest.h>

#include "tests/plugin/heartbeat_checks.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// Also not by launches that would have been timed.
void NeverTouchACapture(bool timed) {
  RunWithGpu([timed](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    if (timed) TimeEveryCall();
    comm.WarmUp();
    AdvanceAndPoll(gpu, kMs);
    const uint64_t records = gpu.RecordsInCallbacks();
    // By what NCCL says of the group, and by the stream alone.
    for (const bool group_says : {true, false}) {
      gpu.BeginCapture(comm.stream());
      for (int i = 0; i < 5; ++i) {
        AdvanceClock(kMs);  // a gate would be due
        void* group = comm.StartGroup(group_says);
        const auto call = comm.MakeCall(group, "AllReduce", 4096, true);
        comm.Launch(group, kMs);
        comm.Report(call);
        comm.StopGroup(group);
        WaitForPoll();
      }
      EXPECT_TRUE(gpu.EndCapture(comm.stream()));
    }
    EXPECT_EQ(gpu.RecordsInCallbacks(), records);
    const CommunicatorSnapshot measured = comm.Read();
    EXPECT_TRUE(measured.captured);
    EXPECT_EQ(measured.launches, 2u);
    EXPECT_EQ(Untimed(measured, UntimedReason::kCaptured), 10u);
    EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 12u);
    // What is launched eagerly beside the graph is followed as before.
    for (int i = 0; i < 3; ++i) comm.Run(kMs);
    AdvanceAndPoll(gpu, kSecond);
    ExpectIdle(comm, 5);
    if (timed) {
      EXPECT_EQ(TimedOperations(comm.Read()), 3u);
    }
  });
}

TEST(HeartbeatTest, ACaptureIsNeverTouched) {
  NeverTouchACapture(true);
  NeverTouchACapture(false);
}

// In global mode a query from any thread ends the capture, unless the thread has opted out.
TEST_WITH_STREAM(HeartbeatTest, PollingDoesNotEndACapture) {
  FakeCuda::Stream captured = gpu.CreateStream(comm.gpu_context());
  gpu.BeginCapture(captured);
  for (int i = 0; i < 10; ++i) {
    comm.Run(kMs);
    WaitForPoll();
  }
  AdvanceAndPoll(gpu, kSecond);
  ExpectIdle(comm, 10);
  EXPECT_GT(gpu.Calls("cuEventQuery"), 10u);
  EXPECT_TRUE(gpu.EndCapture(captured));
  EXPECT_FALSE(comm.Read().captured);
}

// What NCCL says of a call holds for its launch, so the driver is asked where there was no call: of a
// group's further launches. Communicators that also capture are no exception.
TEST_WITH_STREAM(HeartbeatTest, TheDriverIsAskedOfLaunchesWithoutCallsAlone) {
  comm.WarmUp();
  gpu.BeginCapture(comm.stream());
  void* group = comm.StartGroup(true);
  comm.MakeCall(group, "AllReduce", 4096, true);
  comm.Launch(group, kMs);
  comm.StopGroup(group);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  const uint64_t questions = gpu.Calls("cuStreamIsCapturing");
  for (int i = 0; i < 3; ++i) comm.Run(kMs);
  AdvanceClock(kSecond);  // a gate is due
  comm.Run(kMs);
  comm.RunGroup(kMs, {{"AllReduce", 4096}, {"AllGather", 4096}});
  EXPECT_EQ(gpu.Calls("cuStreamIsCapturing"), questions);
  group = comm.StartGroup(false, 2);
  comm.MakeCall(group, "AllReduce", 4096);
  comm.Launch(group, kMs);
  comm.Launch(group, kMs);
  comm.StopGroup(group);
  EXPECT_EQ(gpu.Calls("cuStreamIsCapturing"), questions + 1);
  AdvanceAndPoll(gpu, kSecond);
  ExpectIdle(comm, 9);
}

// The driver does not even say whether the legacy stream is in capture. That is no failure.
TEST_WITH_STREAM(HeartbeatTest, TheLegacyStreamWhileAnotherIsCaptured) {
  FakeCuda::Stream captured = gpu.CreateStream(comm.gpu_context());
  comm.UseStream(nullptr);
  comm.Run(kMs);
  gpu.BeginCapture(captured);
  comm.Launch(comm.StartGroup(false, 2), kMs);  // the driver refuses such a launch; not followed
  EXPECT_TRUE(gpu.EndCapture(captured));
  comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  ExpectIdle(comm, 2);
}

}  // namespace
}  // namespace nccl_pulse
