// Gates: whether the GPU has begun the oldest launch, or still has earlier work to do.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plugin/heartbeat_checks.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// What is said of the oldest launch once nothing has completed for a while.
OldestLaunch AtStandstill(const StreamCommunicator& comm) {
  // What completed before is seen, then what the gates tell of that, then nothing new.
  for (int i = 0; i < 3; ++i) AdvanceClockAndPoll(200 * kMs);
  return comm.Read().oldest_launch;
}

TEST_WITH_STREAM(HeartbeatTest, TheGpuDoesNotComeToALaunch) {
  for (int i = 0; i < 30; ++i) RunWithGate(comm, kMs);
  AdvanceAndPoll(gpu, kSecond);
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
    AdvanceAndPoll(gpu, kSecond);
    ExpectIdle(comm, 30 * (rounds + 1));
    EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUnknown);
  }
}

// It waits in a collective: the GPU has come to that.
TEST_WITH_STREAM(HeartbeatTest, TheGpuWaitsInALaunch) {
  for (int i = 0; i < 5; ++i) RunWithGate(comm, kMs);
  RunWithGate(comm, FakeCuda::kForever);
  gpu.Launch(comm.stream(), kMs);
  for (int i = 0; i < 30; ++i) RunWithGate(comm, kMs);
  gpu.Advance(kSecond);
  EXPECT_EQ(AtStandstill(comm), OldestLaunch::kBegun);
  EXPECT_TRUE(comm.Read().is_at_oldest);
  EXPECT_EQ(comm.Read().launches_completed, 5u);
  gpu.Release(comm.stream());
  AdvanceAndPoll(gpu, kSecond);
  ExpectIdle(comm, 36);
  EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUnknown);
}

TEST_WITH_GPU(HeartbeatTest, TheFirstLaunchOfAll) {
  StreamCommunicator waits(gpu, 1);
  StreamCommunicator comm(gpu, 2);
  gpu.Launch(comm.stream(), FakeCuda::kForever);
  comm.Run(kMs);
  waits.Run(FakeCuda::kForever);
  EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
  EXPECT_EQ(AtStandstill(waits), OldestLaunch::kBegun);
  EXPECT_FALSE(waits.Read().is_at_oldest) << "no gate behind it tells";
}

// Launches were complete, but no marker stands behind the last of them, and the tail has gone on.
TEST_WITH_STREAM(HeartbeatTest, GatesTellOfCompletedLaunches) {
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
}

// A step ends with launches that follow each other at once; the next one stands behind work of the
// application. What completed is known, and that the GPU has not come to the last.
TEST_WITH_STREAM(HeartbeatTest, ABurstOfLaunchesBeforeTheHostRests) {
  for (uint64_t step = 1; step <= 3; ++step) {
    WaitForPoll();
    for (int i = 0; i < 10; ++i) RunWithGate(comm, kMs);  // of the step
    comm.Run(kMs);
    comm.Run(kMs);
    gpu.Advance(kSecond);
    gpu.Launch(comm.stream(), FakeCuda::kForever);  // the application's
    comm.Run(kMs);
    EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
    EXPECT_EQ(comm.Read().launches_completed, 13 * step - 1);
    gpu.Release(comm.stream());
    AdvanceAndPoll(gpu, kSecond);
    ExpectIdle(comm, 13 * step);
  }
}

// The GPU does not come to the first launch of a step. Two more follow it at once, and no poll
// comes between.
TEST_WITH_GPU(HeartbeatTest, TheFirstLaunchAfterAPauseHasAGate) {
  SlowClock();  // a launch after a pause has a gate
  StreamCommunicator comm(gpu, 1);
  gpu.Block("cuEventQuery");
  comm.Run(kMs);
  ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
  for (int i = 0; i < 19; ++i) comm.Run(kMs);  // the last poll brings the first four gates
  gpu.Advance(kSecond);
  AdvanceClock(kMs);
  gpu.Launch(comm.stream(), FakeCuda::kForever);  // the application's
  for (int i = 0; i < 3; ++i) comm.Run(kMs);
  gpu.Unblock();
  EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
  EXPECT_EQ(comm.Read().launches_completed, 20u);
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
        AdvanceAndPoll(gpu, kSecond);
        ExpectIdle(comm, 81 * round);
      }
    });
  }
}

TEST_WITH_STREAM(HeartbeatTest, GatesOnSeveralStreams) {
  FakeCuda::Stream other = gpu.CreateStream(comm.gpu_context());
  RunWithGate(comm, kMs);
  gpu.Advance(kMs);
  gpu.Launch(other, FakeCuda::kForever);
  RunWithGate(comm, kMs, other);
  RunWithGate(comm, kMs);  // on its own again, behind that
  EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
  EXPECT_EQ(comm.Read().launches_completed, 1u);
  gpu.Release(other);
  AdvanceAndPoll(gpu, kSecond);
  ExpectIdle(comm, 3);
  // It has begun on one; the next, on the other, has not.
  RunWithGate(comm, FakeCuda::kForever);
  RunWithGate(comm, kMs, other);
  EXPECT_EQ(AtStandstill(comm), OldestLaunch::kBegun);
  EXPECT_EQ(comm.Read().launches_completed, 3u);
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

// Four after each look at a high rate of launches (a test that loses the CPU has pauses); else each
// launch has one.
TEST_WITH_STREAM(HeartbeatTest, GatesAreFewWhereLaunchesAreMany, {"NCCL_PULSE_TIMING", "kernel"}) {
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
  constexpr uint64_t kMarkersAndGatesOfALook = 5;
  EXPECT_TRUE(WaitUntil([&] {
    const uint64_t before = Pauses();
    run_batch();
    const uint64_t looks = Pauses() - before + 1;
    return records <= kBatch + std::min(kMarkersAndGatesOfALook * looks, kBatch / 2);
  })) << records;
  EXPECT_GE(records, kBatch);
  gpu.Advance(kSecond);
  AdvanceClockAndPoll(kSecond);
  const uint64_t before = gpu.RecordsInCallbacks();
  for (int i = 0; i < 100; ++i) RunWithGate(comm, 1000);
  EXPECT_GE(gpu.RecordsInCallbacks(), before + 200);
  AdvanceAndPoll(gpu, kSecond);
  ExpectIdle(comm, launches + 100);
}

TEST_WITH_STREAM(HeartbeatTest, FinalizedInFrontOfAGate) {
  gpu.Launch(comm.stream(), FakeCuda::kForever);
  for (int i = 0; i < 20; ++i) RunWithGate(comm, kMs);
  EXPECT_EQ(AtStandstill(comm), OldestLaunch::kNotBegun);
  comm.Finalize();
  AdvanceClockAndPoll(6 * kSecond);
  EXPECT_FALSE(comm.Read().has_heartbeat);
  EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUnknown);
  EXPECT_EQ(gpu.EventsAlive(), 0);
  AdvanceClock(700 * kSecond);
  StreamCommunicator next(gpu, 2);  // in its place
  EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
  EXPECT_EQ(next.Read().oldest_launch, OldestLaunch::kUnknown);
  RunWithGate(next, FakeCuda::kForever);
  EXPECT_EQ(AtStandstill(next), OldestLaunch::kBegun);
}

}  // namespace
}  // namespace nccl_pulse
