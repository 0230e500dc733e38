// Operations and launches that are reported late, twice or out of order, and unusual streams.
#include <gtest/gtest.h>

#include <vector>

#include "tests/plugin/stream_job.h"
#include "tests/plugin/stream_timer_checks.h"

namespace nccl_pulse {
namespace {

// A CUDA host callback reports an operation when it pleases: before its launch, or after the next.
TEST_WITH_STREAM(StreamTimerTest, OperationsReportedOutOfOrderAreCountedOnce) {
  comm.TimeEveryCall();
  // It is reported before its launch.
  void* group = comm.StartGroup();
  auto call = comm.MakeCall(group, "AllReduce", 4096);
  comm.Report(call);
  comm.Launch(group, kMs);
  comm.StopGroup(group);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(TimedOperations(comm.Read()), 0u);
  ExpectEveryOperationOnce(comm.Read(), 3);
  // It is reported after the launch of the next, which is of another kind and not timed.
  group = comm.StartGroup();
  call = comm.MakeCall(group, "AllReduce", 4096);
  comm.Launch(group, kMs);
  comm.StopGroup(group);
  void* next = comm.StartGroup();
  const auto next_call = comm.MakeCall(next, "Reduce", 64);
  comm.Launch(next, kMs);
  comm.StopGroup(next);
  comm.Report(call);
  comm.Report(next_call);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(TimedOperations(comm.Read()), 1u);
  ExpectEveryOperationOnce(comm.Read(), 5);
  // It has no launch (a copy-engine collective, say) and comes after one that was timed.
  comm.Run(kMs);
  group = comm.StartGroup();
  comm.Report(comm.MakeCall(group, "AllGather", 64));
  comm.StopGroup(group);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(TimedOperations(comm.Read()), 2u);
  ExpectEveryOperationOnce(comm.Read(), 7);
}

TEST_WITH_STREAM(StreamTimerTest, ALaunchWithoutEndIsPassedOver) {
  comm.TimeEveryCall();
  // More than there are pairs: none may be lost for good.
  for (int i = 0; i < 20; ++i) {
    void* group = comm.StartGroup();
    const auto call = comm.MakeCall(group, "AllReduce", 4096);
    comm.StartLaunch(group);
    if (i % 2 == 0) comm.Report(call);
    comm.StopGroup(group);
  }
  comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_EQ(TimedOperations(measured), 1u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kLost), 10u);
  ExpectEveryOperationOnce(measured, 2 + 10 + 1);
  EXPECT_EQ(measured.launches, 3u);
  EXPECT_EQ(measured.launches_completed, 3u);
}

// A CUDA host callback may report an operation many launches later.
TEST_WITH_STREAM(StreamTimerTest, TimedOperationsReportedLateAreCountedOnce) {
  comm.TimeEveryCall();
  std::vector<StreamCommunicator::Call> calls;
  for (int i = 0; i < 8; ++i) {
    void* group = comm.StartGroup();
    calls.push_back(comm.MakeCall(group, "AllReduce", 4096));
    comm.Launch(group, kMs);
    comm.StopGroup(group);
  }
  for (const auto& call : calls) comm.Report(call);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(TimedOperations(comm.Read()), 8u);
  ExpectEveryOperationOnce(comm.Read(), 10);
}

TEST_WITH_STREAM(StreamTimerTest, AnOperationReportedAfterItsLaunchWasGivenUp) {
  comm.TimeEveryCall();
  void* group = comm.StartGroup();
  const auto call = comm.MakeCall(group, "AllReduce", 4096);
  comm.StartLaunch(group);
  comm.StopGroup(group);
  comm.Run(kMs, "Reduce", 64);
  comm.Report(call);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(TimedOperations(comm.Read()), 0u);
  ExpectEveryOperationOnce(comm.Read(), 4);
}

TEST(StreamTimerTest, TheDefaultStreams) {
  for (const uintptr_t handle : {0, 1, 2}) {
    RunWithGpu([&](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      comm.UseStream(reinterpret_cast<void*>(handle));  // NOLINT(performance-no-int-to-ptr)
      comm.TimeEveryCall();
      for (int i = 0; i < 3; ++i) comm.Run(kMs);
      AdvanceAndPoll(gpu, kSecond);
      EXPECT_EQ(TimedOperations(comm.Read()), 3u);
      EXPECT_TRUE(comm.Read().has_heartbeat);
      EXPECT_EQ(comm.Read().launches_completed, 5u);
    });
  }
}

// Several GPUs of one process: whatever context its other communicators left behind in the thread.
TEST_WITH_GPU(StreamTimerTest, AnotherGpusContextIsCurrent) {
  StreamCommunicator comm(gpu, 1, 0);
  StreamCommunicator other(gpu, 2, 1);  // its context stays current here
  TimeEveryCall();
  for (StreamCommunicator* each : {&comm, &other}) each->WarmUp();
  for (int i = 0; i < 3; ++i) {
    comm.Run(kMs);
    other.Run(2 * kMs);
  }
  AdvanceAndPoll(gpu, kSecond);
  for (StreamCommunicator* each : {&comm, &other}) {
    EXPECT_EQ(TimedOperations(each->Read()), 3u);
    EXPECT_EQ(each->Read().launches_completed, 5u);
  }
  // The default stream is then another GPU's: refused by the driver, and given up.
  comm.UseStream(nullptr);
  for (int i = 0; i < 3; ++i) comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_FALSE(comm.Read().has_heartbeat);
  EXPECT_EQ(comm.Read().launches, 8u);
  ExpectEveryOperationOnce(comm.Read(), 8);
  EXPECT_TRUE(other.Read().has_heartbeat);
}

}  // namespace
}  // namespace nccl_pulse
