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
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/plugin/stream_job.h"

#if defined(__SANITIZE_ADDRESS__)
// At exit LeakSanitizer stops all threads to look through them, and dies of it when one of them is
// busy with a driver that a test has loaded. Here processes exit while threads run; the scenarios
// of the other tests end without a leak check anyway.
extern "C" int __lsan_is_turned_off() { return 1; }  // NOLINT(bugprone-reserved-identifier)
#endif

namespace nccl_pulse {
namespace {

int64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// The two clocks are not read at the same moment.
constexpr int64_t kClockSlackNs = 2000000000;

void ExpectIdle(const StreamCommunicator& comm, uint64_t launches) {
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_TRUE(measured.has_heartbeat);
  EXPECT_EQ(measured.launches, launches);
  EXPECT_EQ(measured.launches_completed, launches);
  EXPECT_EQ(measured.oldest_inflight_realtime_ns, 0);
}

TEST(HeartbeatTest, IdleBusyIdle) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// The host is always ahead: the last launch is never complete, and yet it is known how far the GPU
// has come, to a part of the backlog.
TEST(HeartbeatTest, UnderSteadyLoadTheBacklogIsKnown) {
  RunWithGpu([](FakeCuda& gpu) {
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
      // The oldest marker is an eighth of the backlog behind, and the next as far again. In
      // launches, not in time: a slow machine's own time comes on top of the test's, now more, now
      // less; hence twice as much.
      constexpr uint64_t kTolerance = kAhead / 2;
      ASSERT_GE(measured.launches_completed + kTolerance, done);
      const auto oldest = std::lower_bound(launched_at.begin(), launched_at.end(),
                                           measured.oldest_inflight_realtime_ns);
      ASSERT_NEAR(static_cast<double>(oldest - launched_at.begin()), static_cast<double>(done),
                  kTolerance);
    }
  });
}

// A collective that a rank never enters: the timestamp is that of its launch, and stands still
// while launches go on behind it.
TEST(HeartbeatTest, AHangIsSeenWhereItBegan) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// It began behind launches that complete, and nothing is launched after it.
TEST(HeartbeatTest, AHangAtTheEndOfABurst) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

TEST(HeartbeatTest, ManyStreamsOfOneCommunicator) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

TEST(HeartbeatTest, AStreamThatIsDestroyed) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// ---- gates --------------------------------------------------------------------------------------

// What is said of the oldest launch once nothing has completed for a while.
OldestLaunch AtStandstill(const StreamCommunicator& comm) {
  // What completed before is seen, then what the gates tell of that, then nothing new.
  for (int i = 0; i < 3; ++i) {
    AdvanceClock(200 * kMs);
    WaitForPoll();
  }
  return comm.Read().oldest_launch;
}

// Far enough from the last launch for it and the next one to have a gate, if that one was.
void RunWithGate(StreamCommunicator& comm, uint64_t duration_ns,
                 FakeCuda::Stream stream = nullptr) {
  AdvanceClock(kMs);
  comm.Run(duration_ns, "AllReduce", 4096, stream);
}

TEST(HeartbeatTest, TheGpuDoesNotComeToALaunch) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    for (int i = 0; i < 30; ++i) RunWithGate(comm, kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUnknown);
    for (int round = 1; round <= 3; ++round) {
      const auto rounds = static_cast<uint64_t>(round);
      gpu.Launch(comm.stream(), FakeCuda::kForever);  // the application's
      const int64_t before = RealtimeNs();
      RunWithGate(comm, kMs);
      EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
      EXPECT_EQ(comm.Read().launches_completed, 30 * rounds);
      // What is launched behind it changes nothing.
      AdvanceClock(10 * kSecond);
      for (int i = 0; i < 29; ++i) RunWithGate(comm, kMs);
      EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
      EXPECT_EQ(comm.Read().launches_completed, 30 * rounds);
      EXPECT_NEAR(static_cast<double>(comm.Read().oldest_inflight_realtime_ns - before), 0,
                  static_cast<double>(kClockSlackNs));
      gpu.Release(comm.stream());
      gpu.Advance(kSecond);
      WaitForPoll();
      ExpectIdle(comm, 30 * (rounds + 1));
      EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUnknown);
    }
  });
}

// It waits in a collective: the GPU has come to that.
TEST(HeartbeatTest, TheGpuWaitsInALaunch) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    for (int i = 0; i < 5; ++i) RunWithGate(comm, kMs);
    RunWithGate(comm, FakeCuda::kForever);
    gpu.Launch(comm.stream(), kMs);
    for (int i = 0; i < 30; ++i) RunWithGate(comm, kMs);
    gpu.Advance(kSecond);
    EXPECT_EQ(AtStandstill(comm), OldestLaunch::kBegun);
    EXPECT_EQ(comm.Read().launches_completed, 5u);
    gpu.Release(comm.stream());
    gpu.Advance(kSecond);
    WaitForPoll();
    ExpectIdle(comm, 36);
    EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUnknown);
  });
}

TEST(HeartbeatTest, TheFirstLaunchOfAll) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator waits(gpu, 1);
    StreamCommunicator comm(gpu, 2);
    gpu.Launch(comm.stream(), FakeCuda::kForever);
    comm.Run(kMs);
    waits.Run(FakeCuda::kForever);
    EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
    EXPECT_EQ(AtStandstill(waits), OldestLaunch::kBegun);
  });
}

// Launches were complete, but no marker stands behind the last of them, and the tail has gone on.
TEST(HeartbeatTest, GatesTellOfCompletedLaunches) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    gpu.Block("cuEventQuery");
    comm.Run(kMs);
    ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
    for (int i = 0; i < 5; ++i) RunWithGate(comm, kMs);
    gpu.Advance(kSecond);
    gpu.Launch(comm.stream(), FakeCuda::kForever);
    RunWithGate(comm, kMs);
    gpu.Unblock();
    EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
    EXPECT_EQ(comm.Read().launches_completed, 6u);
  });
}

// Nobody has looked at the gates for so long that all are in use: the last launch still has one.
TEST(HeartbeatTest, MoreLaunchesThanGates) {
  for (const bool begun : {false, true}) {
    RunWithGpu([begun](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      for (uint64_t round = 1; round <= 3; ++round) {
        gpu.Block("cuEventQuery");
        for (int i = 0; i < 40; ++i) RunWithGate(comm, kMs);
        ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
        for (int i = 0; i < 40; ++i) RunWithGate(comm, kMs);
        gpu.Advance(kSecond);
        if (!begun) gpu.Launch(comm.stream(), FakeCuda::kForever);
        RunWithGate(comm, begun ? FakeCuda::kForever : kMs);
        gpu.Unblock();
        EXPECT_EQ(AtStandstill(comm), begun ? OldestLaunch::kBegun : OldestLaunch::kNotBegun);
        EXPECT_EQ(comm.Read().launches_completed, 81 * round - 1);
        gpu.Release(comm.stream());
        gpu.Advance(kSecond);
        WaitForPoll();
        ExpectIdle(comm, 81 * round);
      }
    });
  }
}

TEST(HeartbeatTest, GatesOnSeveralStreams) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    FakeCuda::Stream other = gpu.CreateStream(comm.gpu_context());
    RunWithGate(comm, kMs);
    gpu.Advance(kMs);
    gpu.Launch(other, FakeCuda::kForever);
    RunWithGate(comm, kMs, other);
    RunWithGate(comm, kMs);  // on its own again, behind that
    EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
    EXPECT_EQ(comm.Read().launches_completed, 1u);
    gpu.Release(other);
    gpu.Advance(kSecond);
    WaitForPoll();
    ExpectIdle(comm, 3);
    // It has begun on one; the next, on the other, has not.
    RunWithGate(comm, FakeCuda::kForever);
    RunWithGate(comm, kMs, other);
    EXPECT_EQ(AtStandstill(comm), OldestLaunch::kBegun);
    EXPECT_EQ(comm.Read().launches_completed, 3u);
  });
}

// Its gate counts for nothing: the next launch may be on another stream.
TEST(HeartbeatTest, GatesOfLaunchesThatWereGivenUp) {
  for (const bool begun : {false, true}) {
    RunWithGpu([begun](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      RunWithGate(comm, kMs);
      gpu.Advance(kMs);
      for (int i = 0; i < 30; ++i) {
        AdvanceClock(kMs);
        comm.StartLaunch(nullptr);
      }
      FakeCuda::Stream other = gpu.CreateStream(comm.gpu_context());
      if (!begun) gpu.Launch(other, FakeCuda::kForever);
      RunWithGate(comm, begun ? FakeCuda::kForever : kMs, other);
      EXPECT_EQ(AtStandstill(comm), begun ? OldestLaunch::kBegun : OldestLaunch::kNotBegun);
      EXPECT_EQ(comm.Read().launches_completed, 1u);
    });
  }
}

// One of 128 at a high rate of launches (a test that loses the CPU has pauses); else each launch
// has one.
TEST(HeartbeatTest, GatesAreFewWhereLaunchesAreMany) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        constexpr uint64_t kBatch = 1280;
        uint64_t launches = 0;
        uint64_t records = 0;
        const auto run_batch = [&] {
          const uint64_t before = gpu.RecordsInCallbacks();
          for (uint64_t i = 0; i < kBatch; ++i) comm.Run(1000);
          launches += kBatch;
          records = gpu.RecordsInCallbacks() - before;
          return records;
        };
        EXPECT_GE(run_batch(), kBatch);  // the tail
        constexpr uint64_t kMarkersAtMost = 10;
        EXPECT_TRUE(WaitUntil([&] {
          return run_batch() <= kBatch + kBatch / 128 + kMarkersAtMost;
        })) << records;
        EXPECT_GE(records, kBatch + kBatch / 128);
        gpu.Advance(kSecond);
        AdvanceClock(kSecond);
        WaitForPoll();
        const uint64_t before = gpu.RecordsInCallbacks();
        for (int i = 0; i < 100; ++i) RunWithGate(comm, 1000);
        EXPECT_GE(gpu.RecordsInCallbacks(), before + 200);
        gpu.Advance(kSecond);
        WaitForPoll();
        ExpectIdle(comm, launches + 100);
      },
      {{"NCCL_PULSE_TIMING", "kernel"}});
}

TEST(HeartbeatTest, FinalizedInFrontOfAGate) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    gpu.Launch(comm.stream(), FakeCuda::kForever);
    for (int i = 0; i < 20; ++i) RunWithGate(comm, kMs);
    EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
    comm.Finalize();
    AdvanceClock(6 * kSecond);
    WaitForPoll();
    EXPECT_FALSE(comm.Read().has_heartbeat);
    EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUnknown);
    EXPECT_EQ(gpu.EventsAlive(), 0);
    AdvanceClock(700 * kSecond);
    StreamCommunicator next(gpu, 2);  // in its place
    EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
    EXPECT_EQ(next.Read().oldest_launch, OldestLaunch::kUnknown);
    RunWithGate(next, FakeCuda::kForever);
    EXPECT_EQ(AtStandstill(next), OldestLaunch::kBegun);
  });
}

// ---- capture ------------------------------------------------------------------------------------

// Also not by launches that would have been timed.
void NeverTouchACapture(bool timed) {
  RunWithGpu([timed](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    if (timed) TimeEveryCall();
    comm.WarmUp();
    gpu.Advance(kMs);
    WaitForPoll();
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
    gpu.Advance(kSecond);
    WaitForPoll();
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
TEST(HeartbeatTest, PollingDoesNotEndACapture) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    FakeCuda::Stream captured = gpu.CreateStream(comm.gpu_context());
    gpu.BeginCapture(captured);
    for (int i = 0; i < 10; ++i) {
      comm.Run(kMs);
      WaitForPoll();
    }
    gpu.Advance(kSecond);
    WaitForPoll();
    ExpectIdle(comm, 10);
    EXPECT_GT(gpu.Calls("cuEventQuery"), 10u);
    EXPECT_TRUE(gpu.EndCapture(captured));
    EXPECT_FALSE(comm.Read().captured);
  });
}

// The driver does not even say whether the legacy stream is in capture. That is no failure.
TEST(HeartbeatTest, TheLegacyStreamWhileAnotherIsCaptured) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    FakeCuda::Stream captured = gpu.CreateStream(comm.gpu_context());
    comm.UseStream(nullptr);
    comm.Run(kMs);
    gpu.BeginCapture(captured);
    comm.Run(kMs);  // the driver refuses such a launch; not followed
    EXPECT_TRUE(gpu.EndCapture(captured));
    comm.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    ExpectIdle(comm, 2);
  });
}

// ---- failures -----------------------------------------------------------------------------------

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
        TimeEveryCall();
        comm.WarmUp();
        other.WarmUp();
        for (int i = 0; i < 3; ++i) comm.Run(kMs);
        gpu.Fail(function, error, comm.gpu_context());
        for (int i = 0; i < 3; ++i) RunWithGate(comm, kMs);
        other.Run(kMs);
        gpu.Advance(kSecond);
        WaitForPoll();
        EXPECT_FALSE(comm.Read().has_heartbeat);
        ExpectIdle(other, 3);
        EXPECT_EQ(TimedOperations(other.Read()), 1u);
        gpu.StopFailing();
        const uint64_t records = gpu.Calls("cuEventRecord");
        for (int i = 0; i < 10; ++i) comm.Run(kMs);
        gpu.Advance(kSecond);
        WaitForPoll();
        EXPECT_EQ(gpu.Calls("cuEventRecord"), records);
        const CommunicatorSnapshot measured = comm.Read();
        EXPECT_FALSE(measured.has_heartbeat);
        EXPECT_EQ(measured.launches, 18u);
        EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 18u);
        EXPECT_GE(Untimed(measured, UntimedReason::kNotTimed), 10u);
        comm.Finalize();
        other.Finalize();
        AdvanceClock(6 * kSecond);
        WaitForPoll();
        EXPECT_EQ(gpu.EventsAlive(), 0);
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
      TimeEveryCall();
      comm.WarmUp();
      gpu.Advance(kSecond);
      WaitForPoll();
      for (int i = 0; i < 3; ++i) comm.Run(kMs);
      WaitForPoll();
      gpu.Fail(function, FakeCuda::kIllegalAddress, comm.gpu_context());
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

TEST(HeartbeatTest, AContextThatIsDestroyed) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    StreamCommunicator other(gpu, 2, 1);
    TimeEveryCall();
    comm.WarmUp();
    for (int i = 0; i < 3; ++i) comm.Run(kMs);
    WaitForPoll();
    EXPECT_TRUE(comm.Read().has_heartbeat);
    gpu.DestroyContext(comm.gpu_context());
    other.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_FALSE(comm.Read().has_heartbeat);
    EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kLost), 3u);
    EXPECT_EQ(TimedOperations(comm.Read()) + Untimed(comm.Read()), 5u);
    ExpectIdle(other, 1);
    comm.Finalize();
    AdvanceClock(6 * kSecond);
    WaitForPoll();
    EXPECT_EQ(gpu.Calls("cuEventDestroy_v2"), 0u);
  });
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
        if (!idle) gpu.Block("cuCtxSetCurrent");
        ASSERT_TRUE(WaitUntil([&] { return idle || gpu.IsBlocked(); }));
        gpu.ResetContext(comm.gpu_context());
        for (int i = 0; i < 100; ++i) gpu.CreateEvent(comm.gpu_context());
        gpu.Advance(kSecond);
        gpu.Unblock();
        WaitForPoll();
        EXPECT_EQ(comm.Read().has_heartbeat, idle);
        if (!finalized) comm.Finalize();
        AdvanceClock(6 * kSecond);
        WaitForPoll();
        EXPECT_EQ(gpu.ForeignEventsDestroyed(), 0u);
      });
    }
  }
}

bool Says(const std::vector<std::string>& log, const std::string& text) {
  return std::any_of(log.begin(), log.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

TEST(HeartbeatTest, NoContextNoHeartbeat) {
  RunWithGpu([](FakeCuda& gpu) {
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
  });
}

TEST(HeartbeatTest, EventsThatCanNotBeMade) {
  RunWithGpu([](FakeCuda& gpu) {
    gpu.Fail("cuEventCreate", 2);
    StreamCommunicator comm(gpu, 1);
    gpu.StopFailing();
    comm.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_FALSE(comm.Read().has_heartbeat);
    EXPECT_EQ(gpu.EventsAlive(), 0);
    EXPECT_EQ(gpu.Calls("cuEventRecord"), 0u);
    comm.Finalize();
  });
}

// Whatever the poller hangs in, NCCL does not wait for it.
TEST(HeartbeatTest, ADriverThatBlocksBlocksThePollerAlone) {
  for (const char* function : {"cuEventQuery", "cuEventElapsedTime", "cuCtxSetCurrent"}) {
    RunWithGpu([&](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      TimeEveryCall();
      comm.WarmUp();
      gpu.Advance(kMs);
      WaitForPoll();
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
      gpu.Advance(kSecond);
      WaitForPoll();
      ExpectIdle(next, 1);
      EXPECT_EQ(comm.Read().launches_completed, 103u);
      EXPECT_EQ(TimedOperations(comm.Read()) + Untimed(comm.Read()), 103u);
    });
  }
}

// ---- life and death -----------------------------------------------------------------------------

TEST(HeartbeatTest, FinalizedWithLaunchesInFlight) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
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
    AdvanceClock(6 * kSecond);
    WaitForPoll();
    // Nobody looks any longer: what became of them is not known.
    EXPECT_FALSE(comm.Read().has_heartbeat);
    EXPECT_EQ(gpu.EventsAlive(), 0);
    EXPECT_EQ(IgnoredByName(ReadSnapshot()),
              (std::map<std::string, uint64_t>{{"stale_handle", 1}}));
  });
}

// Its number may be that of a launch which the place's next communicator is making.
TEST(HeartbeatTest, ALaunchOfAnEndedCommunicatorEndsNoneOfTheNextOnes) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
    EXPECT_EQ(IgnoredByName(ReadSnapshot()),
              (std::map<std::string, uint64_t>{{"stale_handle", 1}}));
    next.StopLaunch(launch);
    EXPECT_EQ(next.Read().launches, 1u);
  });
}

TEST(HeartbeatTest, AtTheEndAllThatWasLaunchedIsComplete) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    for (int i = 0; i < 20; ++i) comm.Run(kMs);
    gpu.Advance(kSecond);
    comm.Finalize();
    WaitForPoll();
    ExpectIdle(comm, 20);
    AdvanceClock(6 * kSecond);
    WaitForPoll();
    ExpectIdle(comm, 20);
    EXPECT_TRUE(comm.Read().finalized);
  });
}

TEST(HeartbeatTest, ThreeHundredCommunicatorsInTurnLeaveNothingBehind) {
  RunWithGpu([](FakeCuda& gpu) {
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
    AdvanceClock(6 * kSecond);
    WaitForPoll();
    EXPECT_EQ(gpu.EventsAlive(), 0);
    EXPECT_EQ(gpu.EventsCreated(), 300u * 43);
    EXPECT_LE(most, 43 * 20);
  });
}

// A place that is used again has a timer again, also when the driver had failed under the first.
TEST(HeartbeatTest, APlaceIsUsedAgain) {
  RunWithGpu([](FakeCuda& gpu) {
    for (uint64_t i = 1; i <= 5; ++i) {
      StreamCommunicator comm(gpu, i);
      comm.Run(kMs);
      if (i % 2 == 0) gpu.Fail("", FakeCuda::kContextDestroyed, comm.gpu_context());
      WaitForPoll();
      EXPECT_EQ(comm.Read().has_heartbeat, i % 2 != 0);
      gpu.Advance(kSecond);
      comm.Finalize();
      AdvanceClock(6 * kSecond);
      WaitForPoll();
      AdvanceClock(700 * kSecond);  // it may be given to the next
    }
    EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
  });
}

// A record that is free at once is not ready at once: the last one's events are still there.
TEST(HeartbeatTest, WhoeverComesAfterOneThatGaveWayHasAHeartbeat) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        for (uint64_t i = 1; i <= 6; ++i) {
          StreamCommunicator comm(gpu, i);
          for (uint64_t bytes = 4096; bytes < 4096 << 12; bytes *= 4) {
            comm.Run(kMs, "AllReduce", bytes);
          }
          gpu.Advance(kSecond);
          WaitForPoll();
          EXPECT_TRUE(comm.Read().has_heartbeat) << i;
          EXPECT_EQ(comm.Read().launches_completed, 6u) << i;
          comm.Finalize();
        }
        EXPECT_GT(ReadSnapshot().recycled_communicators, 0u);
        EXPECT_FALSE(Says(TakeLog(), "no CUDA events"));
      },
      {{"NCCL_PULSE_SERIES_LIMIT", "32"}});
}

// A poller that was stuck in the driver for so long that the record has been recycled.
TEST(HeartbeatTest, WhatIsSeenTooLateIsNotTheNextOwners) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    gpu.Advance(kMs);
    WaitForPoll();
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
  });
}

// A non-blocking communicator launches on a thread of NCCL's.
TEST(HeartbeatTest, LaunchedOnAnotherThreadThanCalled) {
  const auto scenario = [](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    comm.LaunchElsewhere();
    TimeEveryCall();
    comm.WarmUp();
    for (int i = 0; i < 5; ++i) {
      void* group = comm.StartGroup();
      const auto call = comm.MakeCall(group, "AllReduce", 4096);
      comm.StopGroup(group);
      comm.Launch(group, kMs);
      comm.Report(call);
    }
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(TimedOperations(comm.Read()), 5u);
    ExpectIdle(comm, 7);
  };
  RunWithGpu(scenario, {{"NCCL_COMM_BLOCKING", "0"}});
}

TEST(HeartbeatTest, AChildOfForkMakesNoDriverCall) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
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
