// Communicators that end, places that are used again, forks, and the end of the process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/plugin/heartbeat_checks.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

TEST_WITH_STREAM(HeartbeatTest, FinalizedWithLaunchesInFlight) {
  comm.TimeEveryCall();
  for (int i = 0; i < 5; ++i) comm.Run(FakeCuda::kForever);
  void* open = comm.StartLaunch(nullptr);
  comm.Finalize();
  comm.StopLaunch(open);
  WaitForPoll();
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kLost), 5u);
  EXPECT_EQ(TimedOperations(comm.Read()) + Untimed(comm.Read()), 7u);
  EXPECT_NE(comm.Read().oldest_inflight_realtime_ns, 0);
  EXPECT_EQ(gpu.Calls("cuEventDestroy_v2"), 0u);
  EXPECT_GT(gpu.EventsAlive(), 0);
  AdvanceClockAndPoll(6 * kSecond);
  // Nobody looks any longer: what became of them is not known.
  EXPECT_FALSE(comm.Read().has_heartbeat);
  EXPECT_EQ(gpu.EventsAlive(), 0);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{{"stale_handle", 1}}));
}

// Its number may be that of a launch which the place's next communicator is making.
TEST_WITH_STREAM(HeartbeatTest, ALaunchOfAnEndedCommunicatorEndsNoneOfTheNextOnes) {
  comm.Run(kMs);
  void* old = comm.StartLaunch(nullptr);
  comm.Finalize();
  gpu.Advance(kSecond);
  AdvanceClock(6 * kSecond);
  WaitForPoll();  // its events are given back
  AdvanceClock(601 * kSecond);
  StreamCommunicator next(gpu, 2);
  ASSERT_EQ(ReadSnapshot().communicators.size(), 1u);  // it has the place
  void* launch = next.StartLaunch(nullptr);
  next.StopLaunch(old);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{{"stale_handle", 1}}));
  next.StopLaunch(launch);
  EXPECT_EQ(next.Read().launches, 1u);
}

TEST_WITH_STREAM(HeartbeatTest, AtTheEndAllThatWasLaunchedIsComplete) {
  for (int i = 0; i < 20; ++i) comm.Run(kMs);
  gpu.Advance(kSecond);
  comm.Finalize();
  WaitForPoll();
  ExpectIdle(comm, 20);
  AdvanceClockAndPoll(6 * kSecond);
  ExpectIdle(comm, 20);
  EXPECT_TRUE(comm.Read().finalized);
}

TEST_WITH_GPU(HeartbeatTest, ThreeHundredCommunicatorsInTurnLeaveNothingBehind) {
  FakeCuda::Context context = gpu.CreateContext(0);
  int64_t most = 0;
  for (uint64_t i = 1; i <= 300; ++i) {
    StreamCommunicator comm(gpu, i, context);
    comm.Run(kMs);
    if (i % 3 != 0) gpu.Advance(kMs);
    comm.Finalize();
    AdvanceClock(kSecond);
    if (i % 10 == 0) WaitForPoll();
    most = std::max(most, gpu.EventsAlive());
  }
  gpu.Advance(kSecond);
  AdvanceClockAndPoll(6 * kSecond);
  EXPECT_EQ(gpu.EventsAlive(), 0);
  EXPECT_EQ(gpu.EventsCreated(), 300u * 43);
  EXPECT_LE(most, 43 * 25);  // work that stalls meanwhile delays some
}

// The driver may wait for kernels that hang before it destroys an event.
TEST_WITH_GPU(HeartbeatTest, NoEventIsDestroyedWhileALaunchStalls) {
  StreamCommunicator stuck(gpu, 1);
  StreamCommunicator over(gpu, 2);
  stuck.Run(FakeCuda::kForever);
  over.Run(kMs);
  gpu.Advance(kSecond);
  AdvanceClockAndPoll(2 * kSecond);
  over.Finalize();
  AdvanceClockAndPoll(6 * kSecond);
  WaitForPoll();
  EXPECT_EQ(gpu.Calls("cuEventDestroy_v2"), 0u);
  gpu.Release(stuck.stream());
  gpu.Advance(kSecond);
  AdvanceClockAndPoll(kSecond);
  WaitForPoll();
  EXPECT_EQ(gpu.EventsAlive(), 43);  // of the other one
}

// Nor while a thread that was taken off the CPU for so long is recording one.
TEST_WITH_GPU(HeartbeatTest, NoEventIsDestroyedWhileItIsRecorded) {
  StreamCommunicator comm(gpu, 1);
  gpu.Block("cuEventRecord");
  std::thread launching([&] { comm.Run(kMs); });
  ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
  comm.Finalize();
  AdvanceClockAndPoll(6 * kSecond);
  EXPECT_EQ(gpu.Calls("cuEventDestroy_v2"), 0u);
  gpu.Unblock();
  launching.join();
  AdvanceClockAndPoll(kSecond);
  EXPECT_EQ(gpu.EventsAlive(), 0);
}

// A place that is used again has a timer again, also when the driver had failed under the first.
TEST_WITH_GPU(HeartbeatTest, APlaceIsUsedAgain) {
  for (uint64_t i = 1; i <= 5; ++i) {
    StreamCommunicator comm(gpu, i);
    comm.Run(kMs);
    if (i % 2 == 0) gpu.Fail("", FakeCuda::kContextDestroyed, comm.gpu_context());
    WaitForPoll();
    EXPECT_EQ(comm.Read().has_heartbeat, i % 2 != 0);
    gpu.Advance(kSecond);
    comm.Finalize();
    AdvanceClockAndPoll(6 * kSecond);
    AdvanceClock(700 * kSecond);  // it may be given to the next
  }
  EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
}

// A record that is free at once is not ready at once: the last one's events are still there.
TEST_WITH_GPU(HeartbeatTest, WhoeverComesAfterOneThatGaveWayHasAHeartbeat,
              {"NCCL_PULSE_SERIES_LIMIT", "32"}) {
  for (uint64_t i = 1; i <= 6; ++i) {
    StreamCommunicator comm(gpu, i);
    for (uint64_t bytes = 4096; bytes < 4096 << 12; bytes *= 4) {
      comm.Run(kMs, "AllReduce", bytes);
    }
    AdvanceAndPoll(gpu, kSecond);
    EXPECT_TRUE(comm.Read().has_heartbeat) << i;
    EXPECT_EQ(comm.Read().launches_completed, 6u) << i;
    comm.Finalize();
  }
  EXPECT_GT(ReadSnapshot().recycled_communicators, 0u);
  EXPECT_FALSE(Says(TakeLog(), "no CUDA events"));
}

// A poller that was stuck in the driver for so long that the record has been recycled.
TEST_WITH_STREAM(HeartbeatTest, WhatIsSeenTooLateIsNotTheNextOwners) {
  comm.TimeEveryCall();
  AdvanceAndPoll(gpu, kMs);
  gpu.Block("cuEventQuery");
  for (int i = 0; i < 3; ++i) comm.Run(kMs);
  gpu.Advance(kSecond);
  ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
  comm.Finalize();
  AdvanceClock(700 * kSecond);
  StreamCommunicator next(gpu, 2);
  ASSERT_EQ(ReadSnapshot().communicators.size(), 1u);
  next.Run(kMs);
  gpu.Unblock();
  WaitForPoll();
  const CommunicatorSnapshot measured = next.Read();
  EXPECT_EQ(measured.launches, 1u);
  EXPECT_TRUE(measured.has_heartbeat) << "another place: that timer is still the other's";
  EXPECT_EQ(measured.launches_completed, 0u);
  EXPECT_EQ(TimedOperations(measured), 0u);
  EXPECT_EQ(Untimed(measured), 1u);
  EXPECT_EQ(measured.last_completion_realtime_ns, 0);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.communicators.size(), 1u);
  EXPECT_EQ(snapshot.series_used, 2u) << "of the one that is there, its calls and algorithms";
  EXPECT_EQ(Ignored(snapshot), 0u);
  next.Finalize();
}

// A non-blocking communicator launches on a thread of NCCL's.
TEST(HeartbeatTest, LaunchedOnAnotherThreadThanCalled) {
  const auto scenario = [](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    comm.LaunchElsewhere();
    comm.TimeEveryCall();
    for (int i = 0; i < 5; ++i) {
      void* group = comm.StartGroup();
      const auto call = comm.MakeCall(group, "AllReduce", 4096);
      comm.StopGroup(group);
      comm.Launch(group, kMs);
      comm.Report(call);
    }
    AdvanceAndPoll(gpu, kSecond);
    EXPECT_EQ(TimedOperations(comm.Read()), 5u);
    ExpectIdle(comm, 7);
  };
  RunWithGpu(scenario, {{"NCCL_COMM_BLOCKING", "0"}});
}

TEST_WITH_STREAM(HeartbeatTest, AChildOfForkMakesNoDriverCall) {
  comm.Run(kMs);
  void* open = comm.StartLaunch(nullptr);
  gpu.Block("cuEventQuery");  // the poller holds nothing of the driver's when we fork
  comm.Run(kMs);
  ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t calls = gpu.Calls();
    comm.StopLaunch(open);
    comm.Run(kMs);
    comm.Finalize();
    usleep(50000);
    _exit(gpu.Calls() == calls ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  gpu.Unblock();
}

TEST(HeartbeatTest, TheProcessMayExitAtAnyMoment) {
  for (int run = 0; run < 30; ++run) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      setenv("NCCL_PULSE_LISTEN", "off", 1);
      FakeCuda& gpu = LoadFakeCuda();
      StreamCommunicator comm(gpu, 1);
      std::atomic<bool> started{false};
      std::thread([&] {
        while (true) {
          comm.Run(1000);
          gpu.Advance(1000);
          started = true;
        }
      }).detach();
      while (!started) usleep(100);
      usleep(static_cast<useconds_t>(run) * 2000);
      exit(0);  // with all that a program does at its end
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

}  // namespace
}  // namespace nccl_pulse
