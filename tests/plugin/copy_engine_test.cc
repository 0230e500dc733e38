// Copy-engine collectives (CeColl, API v6): launches without a kernel, timed and followed like one.
#include "tests/plugin/copy_engine.h"

#include <gtest/gtest.h>

namespace nccl_pulse {
namespace {

uint64_t CountedAsCopyEngine(const CommunicatorSnapshot& measured) {
  uint64_t count = 0;
  for (const AlgorithmCountSnapshot& algorithm : measured.algorithms) {
    if (algorithm.algo == "CE") count += algorithm.operations;
  }
  return count;
}

TEST_WITH_STREAM(CopyEngineTest, IsTimedAndFollowedLikeALaunch) {
  CopyEngine engine(gpu, comm);
  TimeEveryCall();
  for (int i = 0; i < 7; ++i) engine.Run(3 * kMs);
  WaitForPoll();
  EXPECT_EQ(comm.Read().launches, 7u);
  EXPECT_EQ(comm.Read().launches_completed, 0u);
  EXPECT_NE(comm.Read().oldest_inflight_realtime_ns, 0);
  AdvanceAndPoll(gpu, kSecond);
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_EQ(measured.launches_completed, 7u);
  EXPECT_EQ(measured.oldest_inflight_realtime_ns, 0);
  const LatencySnapshot latency = StreamLatency(measured, "AllGather");
  EXPECT_EQ(latency.histogram.Count(), 5u);  // not the first two calls
  EXPECT_NEAR(static_cast<double>(latency.histogram.sum_ns), 15.0 * kMs, 100);
  EXPECT_EQ(latency.bytes, 5u * 4096);
  EXPECT_EQ(latency.bus_bytes, 5u * 4096);  // (n - 1) of two ranks
  for (const TimedCallSnapshot& call : measured.timed_calls) EXPECT_GE(call.call_number, 2u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kNotSampled), 2u);
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 7u);
  EXPECT_EQ(CountedAsCopyEngine(measured), 7u);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{}));
}

TEST_WITH_STREAM(CopyEngineTest, AHangIsSeen) {
  CopyEngine engine(gpu, comm);
  engine.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  engine.Run(FakeCuda::kForever);
  for (int i = 0; i < 5; ++i) comm.Run(kMs);
  gpu.Advance(kSecond);
  AdvanceClockAndPoll(60 * kSecond);
  EXPECT_EQ(comm.Read().launches, 7u);
  EXPECT_EQ(comm.Read().launches_completed, 1u);
  EXPECT_LT(comm.Read().oldest_inflight_realtime_ns,
            ReadSnapshot().last_poll_realtime_ns - 50 * int64_t{1000000000});
}

TEST(CopyEngineTest, TheGpuDoesNotComeToIt) {
  for (const bool begun : {false, true}) {
    RunWithGpu([begun](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      CopyEngine engine(gpu, comm);
      if (!begun) gpu.Launch(comm.stream(), FakeCuda::kForever);
      engine.Run(FakeCuda::kForever);
      for (int i = 0; i < 3; ++i) AdvanceClockAndPoll(200 * kMs);
      EXPECT_EQ(comm.Read().oldest_launch, begun ? OldestLaunch::kBegun : OldestLaunch::kNotBegun);
    });
  }
}

// The kernels of the same group are launched besides, before it or after it.
TEST(CopyEngineTest, InAGroupWithKernels) {
  for (const bool first : {true, false}) {
    RunWithGpu([&](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      CopyEngine engine(gpu, comm);
      TimeEveryCall();
      constexpr uint64_t kRounds = 6;
      for (uint64_t round = 0; round < kRounds; ++round) {
        void* group = comm.StartGroup();
        const auto copied = comm.MakeCall(group, "AllGather", 1000);
        const auto reduced = comm.MakeCall(group, "AllReduce", 2000);
        if (first) engine.Carry(copied, 2 * kMs);
        comm.Launch(group, 5 * kMs);
        comm.Report(reduced);
        if (!first) engine.Carry(copied, 2 * kMs);
        comm.StopGroup(group);
        AdvanceAndPoll(gpu, kSecond);
      }
      const CommunicatorSnapshot measured = comm.Read();
      EXPECT_EQ(measured.launches, 2 * kRounds);
      EXPECT_EQ(measured.launches_completed, 2 * kRounds);
      const LatencySnapshot copied = StreamLatency(measured, "AllGather");
      EXPECT_GE(copied.histogram.Count(), kRounds - 1);
      EXPECT_NEAR(static_cast<double>(copied.histogram.sum_ns),
                  static_cast<double>(copied.histogram.Count()) * 2.0 * kMs, 100);
      EXPECT_EQ(copied.bytes, copied.histogram.Count() * 1000);
      const LatencySnapshot kernels = StreamLatency(measured, "Grouped");
      EXPECT_GE(kernels.histogram.Count(), kRounds - 1);
      EXPECT_NEAR(static_cast<double>(kernels.histogram.sum_ns),
                  static_cast<double>(kernels.histogram.Count()) * 5.0 * kMs, 100);
      EXPECT_EQ(kernels.bytes, kernels.histogram.Count() * 2000);
      EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 2 * kRounds);
    });
  }
}

TEST_WITH_STREAM(CopyEngineTest, CapturedOnesAreNotTouched) {
  CopyEngine engine(gpu, comm);
  TimeEveryCall();
  for (const bool call_says : {true, false}) {
    gpu.BeginCapture(comm.stream());
    for (int i = 0; i < 3; ++i) engine.Run(kMs, "AllGather", 4096, call_says);
    EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  }
  EXPECT_EQ(gpu.RecordsInCallbacks(), 0u);
  EXPECT_TRUE(comm.Read().captured);
  EXPECT_EQ(comm.Read().launches, 0u);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kCaptured), 6u);
}

// On an error NCCL leaves without the stop; and RCCL has a way to one without a call.
TEST_WITH_STREAM(CopyEngineTest, WithoutEndOrCall) {
  CopyEngine engine(gpu, comm);
  TimeEveryCall();
  for (int i = 0; i < 20; ++i) engine.Start({"AllGather", 4096});
  for (int i = 0; i < 4; ++i) engine.Carry({"AllGather", 4096}, kMs);
  AdvanceAndPoll(gpu, kSecond);
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_EQ(measured.launches, 4u);
  EXPECT_EQ(measured.launches_completed, 4u);
  EXPECT_EQ(TimedOperations(measured), 4u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kLost), 18u);
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 24u);
}

TEST_WITH_STREAM(CopyEngineTest, ADriverThatFails) {
  CopyEngine engine(gpu, comm);
  TimeEveryCall();
  for (int i = 0; i < 5; ++i) engine.Run();
  gpu.Fail("cuEventRecord", FakeCuda::kIllegalAddress);
  for (int i = 0; i < 5; ++i) engine.Run();
  WaitForPoll();
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_FALSE(measured.has_heartbeat);
  EXPECT_EQ(measured.launches, 10u);
  EXPECT_EQ(Untimed(measured, UntimedReason::kLost), 3u);
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), 10u);
}

TEST(CopyEngineTest, OtherTimingsDoNotTimeIt) {
  for (const char* timing : {"kernel", "off"}) {
    RunWithGpu(
        [&](FakeCuda& gpu) {
          StreamCommunicator comm(gpu, 1);
          CopyEngine engine(gpu, comm);
          for (int i = 0; i < 5; ++i) engine.Run();
          AdvanceAndPoll(gpu, kSecond);
          const bool kernel = std::string(timing) == "kernel";
          EXPECT_EQ(comm.Read().has_heartbeat, kernel);
          EXPECT_EQ(comm.Read().launches, 5u);
          EXPECT_EQ(comm.Read().launches_completed, kernel ? 5u : 0u);
          EXPECT_EQ(
              Untimed(comm.Read(), kernel ? UntimedReason::kInvisible : UntimedReason::kNotTimed),
              5u);
        },
        {{"NCCL_PULSE_TIMING", timing}});
  }
}

}  // namespace
}  // namespace nccl_pulse
