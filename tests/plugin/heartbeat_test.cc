// What is launched, completed and stuck, at any moment, whatever streams, contexts, captures and
// the driver do.
//
// What can go wrong, and which test covers it (ST: stream_timer_test, SS: stream_stress_test, CE:
// copy_engine_test, IF: inflight_test; "..." where a name is cut):
//
//   hazard                                       test
//   -------------------------------------------  ----------------------------------
//   The driver refuses a call (201, 400; 46; 4   ADriverThatFailsIsAskedNoMore
//     at exit)
//   A device error that sticks (700), a context  AContextThatIsDestroyed, SS
//     that is destroyed (709)
//   The primary context is reset, and its        AContextThatIsReset
//     addresses are given to others
//   No context, no events at init                NoContextNoHeartbeat
//                                                EventsThatCanNotBeMade
//   A driver call that never returns             ADriverThatBlocksBlocks...
//                                                WhatIsSeenTooLate...
//   A stream that is destroyed; default          AStreamThatIsDestroyed
//     streams; many streams                      ST.TheDefaultStreams
//                                                ManyStreamsOfOneCommunicator
//   Another GPU's context is current             ST.AnotherGpusContextIsCurrent
//   Capture, of this stream or another one, in   ACaptureIsNeverTouched
//     global mode                                PollingDoesNotEndACapture
//                                                TheLegacyStreamWhile...
//   Launch on another thread than the call       LaunchedOnAnotherThread...
//   Report before the launch, late or never;     ST.OperationsReportedOutOfOrder
//     launch without end                         ST.TimedOperationsReportedLate
//                                                ST.AnOperationReportedAfter...
//                                                ST.ALaunchWithoutEnd...
//   Armed pairs at failure and finalize: lost,   FinalizedWithLaunchesInFlight
//     and counted once                           CE.ADriverThatFails
//   Fork; exit while polling                     AChildOfForkMakesNoDriverCall
//                                                TheProcessMayExitAtAnyMoment
//   The driver fails, the network goes on        IF.AfterTheDriverHasFailed
//   The GPU does not come to a launch: earlier   TheGpuDoesNotComeToALaunch
//     work of the application on the stream;     CE.TheGpuDoesNotCome...
//     other streams; launches given up; many;    SS
//     looked at closely, or not for long
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/plugin/heartbeat_checks.h"
#include "tests/plugin/stream_job.h"

#if defined(__SANITIZE_ADDRESS__)
// At exit LeakSanitizer stops all threads to look through them, and dies of it when one of them is
// busy with a driver that a test has loaded. Here processes exit while threads run; the scenarios
// of the other tests end without a leak check anyway.
extern "C" int __lsan_is_turned_off() { return 1; }  // NOLINT(bugprone-reserved-identifier)
#endif

namespace nccl_pulse {
namespace {

TEST_WITH_STREAM(HeartbeatTest, IdleBusyIdle) {
  WaitForPoll();
  ExpectIdle(comm, 0);
  for (int i = 0; i < 100; ++i) comm.Run(kMs);
  WaitForPoll();
  EXPECT_EQ(comm.Read().launches, 100u);
  EXPECT_EQ(comm.Read().launches_completed, 0u);
  EXPECT_NE(comm.Read().oldest_inflight_realtime_ns, 0);
  EXPECT_EQ(comm.Read().last_completion_realtime_ns, 0);
  gpu.Advance(100 * kMs);
  WaitForPoll();
  ExpectIdle(comm, 100);
  EXPECT_NE(comm.Read().last_completion_realtime_ns, 0);
  EXPECT_NE(comm.Read().last_launch_realtime_ns, 0);
}

// The host is always ahead: the last launch is never complete, and yet it is known how far the GPU
// has come, to a part of the backlog.
TEST_WITH_GPU(HeartbeatTest, UnderSteadyLoadTheBacklogIsKnown) {
  SlowClock();  // the markers' distance is a time
  StreamCommunicator comm(gpu, 1);
  constexpr uint64_t kAhead = 100;
  constexpr uint64_t kStepMs = 10;
  std::vector<int64_t> launched_at;
  const auto launch = [&] {
    comm.Run(kStepMs * kMs);
    launched_at.push_back(comm.Read().last_launch_realtime_ns);
  };
  for (uint64_t i = 0; i < kAhead; ++i) {
    launch();
    AdvanceClock(kStepMs * kMs);
    WaitForPoll();
  }
  for (uint64_t done = 1; done < 400; ++done) {
    launch();
    gpu.Advance(kStepMs * kMs);
    AdvanceClock(kStepMs * kMs);
    WaitForPoll();
    const CommunicatorSnapshot measured = comm.Read();
    ASSERT_EQ(measured.launches, kAhead + done);
    ASSERT_LE(measured.launches_completed, done);
    if (done < 2 * kAhead) continue;  // the markers have spread out
    // The oldest marker is an eighth of the backlog behind, and the next as far again.
    constexpr uint64_t kTolerance = kAhead / 4;
    ASSERT_GE(measured.launches_completed + kTolerance, done);
    const auto oldest = std::lower_bound(launched_at.begin(), launched_at.end(),
                                         measured.oldest_inflight_realtime_ns);
    ASSERT_NEAR(static_cast<double>(oldest - launched_at.begin()), static_cast<double>(done),
                kTolerance);
  }
}

// A collective that a rank never enters: the timestamp is that of its launch, and stands still
// while launches go on behind it.
TEST_WITH_STREAM(HeartbeatTest, AHangIsSeenWhereItBegan) {
  StreamCommunicator other(gpu, 2);
  for (int i = 0; i < 50; ++i) {
    comm.Run(kMs);
    gpu.Advance(kMs);
    AdvanceClock(20 * kMs);
    WaitForPoll();
  }
  ExpectIdle(comm, 50);
  const int64_t before = RealtimeNs();
  comm.Run(FakeCuda::kForever);
  const int64_t after = RealtimeNs();
  WaitForPoll();
  const int64_t since = comm.Read().oldest_inflight_realtime_ns;
  EXPECT_GE(since, before - kClockSlackNs);
  EXPECT_LE(since, after + kClockSlackNs);
  for (int i = 0; i < 30; ++i) {
    comm.Run(kMs);
    other.Run(kMs);
    gpu.Advance(kSecond);
    AdvanceClock(kSecond);
    WaitForPoll();
    EXPECT_NEAR(static_cast<double>(comm.Read().oldest_inflight_realtime_ns - since), 0, 1e8);
    EXPECT_EQ(comm.Read().launches_completed, 50u);
    EXPECT_EQ(comm.Read().launches, 52u + static_cast<uint64_t>(i));
    ExpectIdle(other, 1 + static_cast<uint64_t>(i));
  }
  gpu.Release(comm.stream());
  gpu.Advance(kSecond);
  WaitForPoll();
  ExpectIdle(comm, 81);
  // And again.
  AdvanceClock(kSecond);
  comm.Run(FakeCuda::kForever);
  WaitForPoll();
  EXPECT_GT(comm.Read().oldest_inflight_realtime_ns, since + 30 * int64_t{1000000000});
}

// It began behind launches that complete, and nothing is launched after it.
TEST_WITH_STREAM(HeartbeatTest, AHangAtTheEndOfABurst) {
  for (int i = 0; i < 5; ++i) comm.Run(kMs);
  comm.Run(FakeCuda::kForever);
  for (int i = 0; i < 5; ++i) comm.Run(kMs);
  gpu.Advance(kSecond);
  WaitForPoll();
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_GE(measured.launches_completed, 1u);
  EXPECT_LE(measured.launches_completed, 5u);
  const int64_t since = measured.oldest_inflight_realtime_ns;
  EXPECT_NE(since, 0);
  AdvanceClock(60 * kSecond);
  WaitForPoll();
  EXPECT_NEAR(static_cast<double>(comm.Read().oldest_inflight_realtime_ns - since), 0, 1e8);
}

TEST_WITH_STREAM(HeartbeatTest, ManyStreamsOfOneCommunicator) {
  TimeEveryCall();
  comm.WarmUp();
  std::vector<FakeCuda::Stream> streams;
  for (int i = 0; i < 20; ++i) streams.push_back(gpu.CreateStream(comm.gpu_context()));
  uint64_t launches = 2;
  for (int round = 0; round < 3; ++round) {
    for (FakeCuda::Stream stream : streams) {
      comm.Run(kMs, "AllReduce", 4096, stream);
      ++launches;
    }
    WaitForPoll();
    EXPECT_LT(comm.Read().launches_completed, launches);
    EXPECT_NE(comm.Read().oldest_inflight_realtime_ns, 0);
    gpu.Advance(kSecond);
    WaitForPoll();
    ExpectIdle(comm, launches);
  }
  // One stream behind the other: each launch has its own duration.
  const LatencySnapshot latency = StreamLatency(comm.Read(), "AllReduce");
  EXPECT_EQ(latency.histogram.Count(), 24u);
  EXPECT_NEAR(static_cast<double>(latency.histogram.sum_ns), 24.0 * kMs, 1000);
}

TEST_WITH_STREAM(HeartbeatTest, AStreamThatIsDestroyed) {
  for (int i = 0; i < 30; ++i) {
    FakeCuda::Stream stream = gpu.CreateStream(comm.gpu_context());
    comm.Run(kMs, "AllReduce", 4096, stream);
    gpu.DestroyStream(stream);
  }
  WaitForPoll();
  EXPECT_NE(comm.Read().oldest_inflight_realtime_ns, 0);
  gpu.Advance(kSecond);
  WaitForPoll();
  ExpectIdle(comm, 30);
}

}  // namespace
}  // namespace nccl_pulse
