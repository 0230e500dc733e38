// A driver that fails, blocks, or has no context: nothing is claimed, and nobody waits.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/plugin/heartbeat_checks.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// One communicator's driver calls fail, at each function that there is; the other's do not.
TEST(HeartbeatTest, ADriverThatFailsIsAskedNoMore) {
  for (const char* function :
       {"cuEventRecord", "cuEventQuery", "cuEventElapsedTime", "cuStreamIsCapturing", ""}) {
    for (const int error :
         {FakeCuda::kContextDestroyed, FakeCuda::kInvalidContext, FakeCuda::kInvalidHandle,
          FakeCuda::kDeviceLost, FakeCuda::kIllegalAddress, FakeCuda::kDeinitialized}) {
      // Each error once with each function would be long under a sanitizer: some with all at once.
      const bool seldom = error == FakeCuda::kInvalidContext || error == FakeCuda::kDeinitialized ||
                          error == FakeCuda::kDeviceLost;
      if (seldom && *function != '\0') continue;
      SCOPED_TRACE(std::string(function) + " " + std::to_string(error));
      RunWithGpu([&](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        StreamCommunicator other(gpu, 2, 1);
        comm.TimeEveryCall();
        other.WarmUp();
        for (int i = 0; i < 3; ++i) comm.Run(kMs);
        gpu.Fail(function, error, comm.gpu_context());
        for (int i = 0; i < 3; ++i) RunWithGate(comm, kMs);
        comm.Launch(comm.StartGroup(false, 2), kMs);  // without a call: is it captured?
        other.Run(kMs);
        AdvanceAndPoll(gpu, kSecond);
        EXPECT_FALSE(comm.Read().has_heartbeat);
        ExpectIdle(other, 3);
        EXPECT_EQ(TimedOperations(other.Read()), 1u);
        gpu.StopFailing();
        const uint64_t records = gpu.Calls("cuEventRecord");
        for (int i = 0; i < 10; ++i) comm.Run(kMs);
        AdvanceAndPoll(gpu, kSecond);
        EXPECT_EQ(gpu.Calls("cuEventRecord"), records);
        const CommunicatorSnapshot measured = comm.Read();
        EXPECT_FALSE(measured.has_heartbeat);
        EXPECT_EQ(measured.launches, 19u);
        EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 18u);
        EXPECT_GE(Untimed(measured, UntimedReason::kNotTimed), 10u);
        comm.Finalize();
        other.Finalize();
        AdvanceClockAndPoll(6 * kSecond);
        EXPECT_EQ(gpu.EventsAlive(), 0);
      });
    }
  }
}

// An error from which the context does not recover names the GPU, whether or not something is in
// flight. Any other is none of the GPU's.
TEST(HeartbeatTest, TheFirstErrorOfALostContextIsKept) {
  for (const bool is_idle : {false, true}) {
    for (const int error : {FakeCuda::kIllegalAddress, FakeCuda::kContextDestroyed}) {
      SCOPED_TRACE(std::string(is_idle ? "idle " : "in flight ") + std::to_string(error));
      RunWithGpu([&](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        StreamCommunicator other(gpu, 2, 1);
        for (StreamCommunicator* each : {&comm, &other}) each->Run(kMs);
        if (is_idle) gpu.Advance(kSecond);
        WaitForPoll();
        EXPECT_EQ(comm.Read().driver_error, 0u);
        gpu.Fail("", error, comm.gpu_context());
        const int64_t failed = RealtimeNs();
        AdvanceClockAndPoll(kSecond);
        gpu.Fail("", FakeCuda::kDeviceLost, comm.gpu_context());
        AdvanceClockAndPoll(kSecond);
        const bool is_lost = error == FakeCuda::kIllegalAddress;
        EXPECT_EQ(comm.Read().driver_error, is_lost ? 700u : 0u);
        if (is_lost) {
          EXPECT_NEAR(static_cast<double>(comm.Read().driver_error_realtime_ns - failed), kSecond,
                      static_cast<double>(kClockSlackNs));
        }
        EXPECT_EQ(comm.Read().has_heartbeat, is_idle && !is_lost);
        EXPECT_EQ(other.Read().driver_error, 0u);
      });
    }
  }
}

// What a driver that fails says about a pair is no duration, and no duration of 0 ns either.
TEST(HeartbeatTest, APairThatIsLostHasNoDuration) {
  for (const char* function : {"cuEventQuery", "cuEventElapsedTime", "cuCtxSetCurrent"}) {
    SCOPED_TRACE(function);
    RunWithGpu([&](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      comm.TimeEveryCall();
      AdvanceAndPoll(gpu, kSecond);
      for (int i = 0; i < 3; ++i) comm.Run(kMs);
      WaitForPoll();
      gpu.Fail(function, FakeCuda::kIllegalAddress, comm.gpu_context());
      // A poll that has already set the context would see the calls end.
      if (std::string_view(function) == "cuCtxSetCurrent") WaitForPoll();
      gpu.Advance(kSecond);
      ASSERT_TRUE(WaitUntil([&] { return !comm.Read().has_heartbeat; }));
      WaitForPoll();
      const CommunicatorSnapshot measured = comm.Read();
      EXPECT_EQ(TimedOperations(measured), 0u);
      EXPECT_TRUE(measured.latencies.empty());
      EXPECT_TRUE(measured.timed_calls.empty());
      EXPECT_EQ(Untimed(measured, UntimedReason::kLost), 3u);
      comm.Finalize();
    });
  }
}

TEST_WITH_STREAM(HeartbeatTest, AContextThatIsDestroyed) {
  StreamCommunicator other(gpu, 2, 1);
  comm.TimeEveryCall();
  for (int i = 0; i < 3; ++i) comm.Run(kMs);
  WaitForPoll();
  EXPECT_TRUE(comm.Read().has_heartbeat);
  gpu.DestroyContext(comm.gpu_context());
  other.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_FALSE(comm.Read().has_heartbeat);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kLost), 3u);
  EXPECT_EQ(TimedOperations(comm.Read()) + Untimed(comm.Read()), 5u);
  ExpectIdle(other, 1);
  comm.Finalize();
  AdvanceClockAndPoll(6 * kSecond);
  EXPECT_EQ(gpu.Calls("cuEventDestroy_v2"), 0u);
}

// A reset leaves the context's address valid and gives the addresses of its events to others.
TEST(HeartbeatTest, AContextThatIsReset) {
  for (const bool idle : {true, false}) {
    for (const bool finalized : {true, false}) {
      RunWithGpu([&](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        comm.Run(kMs);
        if (idle) gpu.Advance(kSecond);
        WaitForPoll();
        if (finalized) comm.Finalize();
        // Not while the poller is in the middle of it: nobody could tell then.
        if (!idle) gpu.Block("cuCtxGetId");
        ASSERT_TRUE(WaitUntil([&] { return idle || gpu.IsBlocked(); }));
        gpu.ResetContext(comm.gpu_context());
        for (int i = 0; i < 100; ++i) gpu.CreateEvent(comm.gpu_context());
        gpu.Advance(kSecond);
        gpu.Unblock();
        WaitForPoll();
        EXPECT_EQ(comm.Read().has_heartbeat, idle);
        if (!finalized) comm.Finalize();
        AdvanceClockAndPoll(6 * kSecond);
        EXPECT_EQ(gpu.ForeignEventsDestroyed(), 0u);
      });
    }
  }
}

// Making a destroyed context current crashes the application's next call of the driver.
TEST_WITH_STREAM(HeartbeatTest, ADestroyedContextIsNotMadeCurrent) {
  comm.Run(kMs);
  WaitForPoll();
  gpu.Block("cuCtxGetId");
  ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
  const uint64_t entered = gpu.Calls("cuCtxSetCurrent");
  gpu.DestroyContext(comm.gpu_context());
  gpu.Unblock();
  WaitForPoll();
  EXPECT_FALSE(comm.Read().has_heartbeat);
  comm.Finalize();
  AdvanceClockAndPoll(6 * kSecond);
  EXPECT_EQ(gpu.Calls("cuCtxSetCurrent"), entered);
}

TEST_WITH_GPU(HeartbeatTest, NoContextNoHeartbeat) {
  gpu.MakeCurrent(nullptr);
  NcclCommunicator comm(1);
  EXPECT_TRUE(Says(TakeLog(), "no CUDA events for a communicator"));
  NcclCommunicator other(2);
  EXPECT_FALSE(Says(TakeLog(), "no CUDA events for a communicator")) << "once";
  other.Finalize();
  for (int i = 0; i < 3; ++i) comm.Enqueue();
  WaitForPoll();
  EXPECT_FALSE(Find(ReadSnapshot(), 1).has_heartbeat);
  EXPECT_EQ(Find(ReadSnapshot(), 1).launches, 3u);
  EXPECT_EQ(Untimed(Find(ReadSnapshot(), 1), UntimedReason::kNotTimed), 3u);
  comm.Finalize();
}

TEST_WITH_GPU(HeartbeatTest, EventsThatCanNotBeMade) {
  gpu.Fail("cuEventCreate", 2);
  StreamCommunicator comm(gpu, 1);
  gpu.StopFailing();
  comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_FALSE(comm.Read().has_heartbeat);
  EXPECT_EQ(gpu.EventsAlive(), 0);
  EXPECT_EQ(gpu.Calls("cuEventRecord"), 0u);
  comm.Finalize();
}

// Whatever the poller hangs in, NCCL does not wait for it.
TEST(HeartbeatTest, ADriverThatBlocksBlocksThePollerAlone) {
  for (const char* function : {"cuEventQuery", "cuEventElapsedTime", "cuCtxSetCurrent"}) {
    RunWithGpu([&](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      comm.TimeEveryCall();
      AdvanceAndPoll(gpu, kMs);
      gpu.Block(function);
      comm.Run(kMs);
      gpu.Advance(kSecond);
      ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); })) << function;
      const int64_t polled = ReadSnapshot().last_poll_realtime_ns;
      for (int i = 0; i < 100; ++i) comm.Run(kMs);
      AdvanceClock(60 * kSecond);
      EXPECT_EQ(comm.Read().launches, 103u);
      comm.Finalize();  // comes back
      // A further one: init asks the driver for other things.
      StreamCommunicator next(gpu, 2);
      next.Run(kMs);
      EXPECT_EQ(next.Read().launches, 1u);
      EXPECT_NEAR(static_cast<double>(ReadSnapshot().last_poll_realtime_ns - polled), 0, 1e6);
      gpu.Unblock();
      AdvanceAndPoll(gpu, kSecond);
      ExpectIdle(next, 1);
      EXPECT_EQ(comm.Read().launches_completed, 103u);
      EXPECT_EQ(TimedOperations(comm.Read()) + Untimed(comm.Read()), 103u);
    });
  }
}

}  // namespace
}  // namespace nccl_pulse
