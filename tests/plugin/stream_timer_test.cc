// What is timed on a stream, and what the time is attributed to.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "plugin/abi/profiler_v4.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// A float of milliseconds holds 24 bits.
void ExpectSeconds(uint64_t measured_ns, uint64_t expected_ns, uint64_t samples) {
  const double tolerance =
      static_cast<double>(expected_ns) / (1 << 22) + static_cast<double>(samples);
  EXPECT_NEAR(static_cast<double>(measured_ns), static_cast<double>(expected_ns), tolerance);
}

// Everything that NCCL reported is either timed or has its reason.
void ExpectEveryOperationOnce(const CommunicatorSnapshot& measured, uint64_t operations) {
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), operations);
}

TEST(StreamTimerTest, ASingleCollectiveHasItsLaunchesDuration) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    uint64_t sum_ns = 0;
    const std::array<uint64_t, 6> durations = {1000, 2900, 72000, 888000, 17 * kMs, 3 * kSecond};
    for (uint64_t duration_ns : durations) {
      comm.Run(duration_ns);
      sum_ns += duration_ns;
      gpu.Advance(duration_ns);
      WaitForPoll();
    }
    const CommunicatorSnapshot measured = comm.Read();
    const LatencySnapshot latency = StreamLatency(measured, "AllReduce");
    EXPECT_EQ(latency.histogram.Count(), durations.size());
    ExpectSeconds(latency.histogram.sum_ns, sum_ns, durations.size());
    EXPECT_EQ(latency.bytes, durations.size() * 4096);
    EXPECT_EQ(latency.bus_bytes, durations.size() * 4096);  // 2 (n-1)/n of two ranks
    EXPECT_EQ(Untimed(measured, UntimedReason::kNotSampled), 2u);
    ExpectEveryOperationOnce(measured, durations.size() + 2);
    ASSERT_EQ(measured.timed_calls.size(), durations.size());
    EXPECT_EQ(measured.timed_calls[0].call_number, 2u);
    EXPECT_EQ(ReadSnapshot().duration_source, "stream");
    EXPECT_EQ(Ignored(ReadSnapshot()), 0u);
  });
}

TEST(StreamTimerTest, OneCollectiveInAnExplicitGroupToo) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    for (int i = 0; i < 3; ++i) comm.RunGroup(5 * kMs, {{"AllGather", 1 << 20}});
    gpu.Advance(kSecond);
    WaitForPoll();
    const LatencySnapshot latency = StreamLatency(comm.Read(), "AllGather");
    EXPECT_EQ(latency.histogram.Count(), 1u);
    ExpectSeconds(latency.histogram.sum_ns, 5 * kMs, 1);
    EXPECT_EQ(latency.bytes, 1u << 20);
    ExpectEveryOperationOnce(comm.Read(), 3);
  });
}

TEST(StreamTimerTest, TheFirstTwoCallsOfEachKindAreNotTimed) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    for (const char* op : {"AllReduce", "AllGather", "Broadcast", "Send"}) {
      for (uint64_t bytes : {64u, 1u << 20}) {
        for (int i = 0; i < 4; ++i) comm.Run(1000, op, bytes);
        gpu.Advance(kMs);
        WaitForPoll();
      }
    }
    for (int i = 0; i < 4; ++i) comm.RunGroup(1000, {{"Send", 64}, {"Recv", 64}});
    gpu.Advance(kMs);
    WaitForPoll();
    const CommunicatorSnapshot measured = comm.Read();
    for (const char* op : {"AllReduce", "AllGather", "Broadcast", "Send"}) {
      EXPECT_EQ(StreamLatency(measured, op).histogram.Count(), 4u) << op;
    }
    EXPECT_EQ(StreamLatency(measured, "Grouped").histogram.Count(), 2u);
    for (const TimedCallSnapshot& call : measured.timed_calls) EXPECT_GE(call.call_number, 2u);
    ExpectEveryOperationOnce(measured, 8 * 4 + 4 * 2);
  });
}

TEST(StreamTimerTest, SeveralOperationsOfALaunchAreTimedAsAGroup) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    for (int i = 0; i < 3; ++i) {
      comm.RunGroup(7 * kMs, {{"AllReduce", 1000}, {"AllGather", 2000}, {"Send", 500}});
    }
    gpu.Advance(kSecond);
    WaitForPoll();
    const CommunicatorSnapshot measured = comm.Read();
    const LatencySnapshot latency = StreamLatency(measured, "Grouped");
    EXPECT_EQ(latency.histogram.Count(), 1u);
    ExpectSeconds(latency.histogram.sum_ns, 7 * kMs, 1);
    EXPECT_EQ(latency.bytes, 3500u);
    EXPECT_EQ(latency.bus_bytes, 3500u);
    EXPECT_EQ(TimedOperations(measured), 0u);
    EXPECT_EQ(Untimed(measured, UntimedReason::kGrouped), 3u);
    EXPECT_EQ(Untimed(measured, UntimedReason::kNotSampled), 6u);
  });
}

// NCCL plans the collectives of a group first, the point-to-point operations after them, and cuts
// where its memory ends.
TEST(StreamTimerTest, AGroupCutIntoSeveralLaunches) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    for (int round = 0; round < 3; ++round) {
      void* group = comm.StartGroup();
      const auto reduce = comm.MakeCall(group, "AllReduce", 1000);
      const auto send = comm.MakeCall(group, "Send", 300);
      const auto receive = comm.MakeCall(group, "Recv", 20);
      comm.Launch(group, 2 * kMs);
      comm.Report(reduce);
      comm.Launch(group, 3 * kMs);
      comm.Report(send);
      comm.Report(receive);
      comm.StopGroup(group);
    }
    gpu.Advance(kSecond);
    WaitForPoll();
    const CommunicatorSnapshot measured = comm.Read();
    const LatencySnapshot latency = StreamLatency(measured, "Grouped");
    EXPECT_EQ(latency.histogram.Count(), 4u);  // of six launches the first two are not timed
    ExpectSeconds(latency.histogram.sum_ns, 10 * kMs, 4);
    EXPECT_EQ(latency.bytes, 2u * 1320);
    EXPECT_EQ(measured.launches, 6u);
    EXPECT_EQ(measured.launches_completed, 6u);
    ExpectEveryOperationOnce(measured, 9);
  });
}

// Operations that NCCL does not report below the call: the first launch stands for their bytes.
TEST(StreamTimerTest, AGroupOfUnreportedOperationsCountsItsBytesOnce) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    for (int round = 0; round < 3; ++round) {
      void* group = comm.StartGroup();
      comm.MakeCall(group, "AllReduce", 1000);
      comm.MakeCall(group, "AllReduce", 3000);
      comm.Launch(group, kMs);
      comm.Launch(group, kMs);
      comm.StopGroup(group);
    }
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(StreamLatency(comm.Read(), "Grouped").histogram.Count(), 4u);
    EXPECT_EQ(StreamLatency(comm.Read(), "Grouped").bytes, 2u * 4000);
  });
}

TEST(StreamTimerTest, PointToPoint) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    for (int i = 0; i < 3; ++i) comm.Run(4 * kMs, "Recv", 2048);
    gpu.Advance(kSecond);
    WaitForPoll();
    const LatencySnapshot latency = StreamLatency(comm.Read(), "Recv");
    EXPECT_EQ(latency.histogram.Count(), 1u);
    ExpectSeconds(latency.histogram.sum_ns, 4 * kMs, 1);
    EXPECT_EQ(latency.bus_bytes, 2048u);
    ExpectEveryOperationOnce(comm.Read(), 3);
  });
}

// A CUDA host callback reports an operation when it pleases: before its launch, or after the next.
TEST(StreamTimerTest, OperationsReportedOutOfOrderAreCountedOnce) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    // Before.
    void* group = comm.StartGroup();
    auto call = comm.MakeCall(group, "AllReduce", 4096);
    comm.Report(call);
    comm.Launch(group, kMs);
    comm.StopGroup(group);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(TimedOperations(comm.Read()), 0u);
    ExpectEveryOperationOnce(comm.Read(), 3);
    // After the launch of the next, which is of another kind and not timed.
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
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(TimedOperations(comm.Read()), 1u);
    ExpectEveryOperationOnce(comm.Read(), 5);
    // Without a launch (a copy-engine collective, say), after one that was timed.
    comm.Run(kMs);
    group = comm.StartGroup();
    comm.Report(comm.MakeCall(group, "AllGather", 64));
    comm.StopGroup(group);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(TimedOperations(comm.Read()), 2u);
    ExpectEveryOperationOnce(comm.Read(), 7);
  });
}

TEST(StreamTimerTest, ALaunchWithoutEndIsPassedOver) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    // More than there are pairs: none may be lost for good.
    for (int i = 0; i < 20; ++i) {
      void* group = comm.StartGroup();
      const auto call = comm.MakeCall(group, "AllReduce", 4096);
      comm.StartLaunch(group);
      if (i % 2 == 0) comm.Report(call);
      comm.StopGroup(group);
    }
    comm.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    const CommunicatorSnapshot measured = comm.Read();
    EXPECT_EQ(TimedOperations(measured), 1u);
    EXPECT_EQ(Untimed(measured, UntimedReason::kLost), 10u);
    ExpectEveryOperationOnce(measured, 2 + 10 + 1);
    EXPECT_EQ(measured.launches, 3u);
    EXPECT_EQ(measured.launches_completed, 3u);
  });
}

// A CUDA host callback may report an operation many launches later.
TEST(StreamTimerTest, TimedOperationsReportedLateAreCountedOnce) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    std::vector<StreamCommunicator::Call> calls;
    for (int i = 0; i < 8; ++i) {
      void* group = comm.StartGroup();
      calls.push_back(comm.MakeCall(group, "AllReduce", 4096));
      comm.Launch(group, kMs);
      comm.StopGroup(group);
    }
    for (const auto& call : calls) comm.Report(call);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(TimedOperations(comm.Read()), 8u);
    ExpectEveryOperationOnce(comm.Read(), 10);
  });
}

TEST(StreamTimerTest, AnOperationReportedAfterItsLaunchWasGivenUp) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    void* group = comm.StartGroup();
    const auto call = comm.MakeCall(group, "AllReduce", 4096);
    comm.StartLaunch(group);
    comm.StopGroup(group);
    comm.Run(kMs, "Reduce", 64);
    comm.Report(call);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(TimedOperations(comm.Read()), 0u);
    ExpectEveryOperationOnce(comm.Read(), 4);
  });
}

TEST(StreamTimerTest, TheDefaultStreams) {
  for (const uintptr_t handle : {0, 1, 2}) {
    RunWithGpu([&](FakeCuda& gpu) {
      StreamCommunicator comm(gpu, 1);
      comm.UseStream(reinterpret_cast<void*>(handle));  // NOLINT(performance-no-int-to-ptr)
      TimeEveryCall();
      comm.WarmUp();
      for (int i = 0; i < 3; ++i) comm.Run(kMs);
      gpu.Advance(kSecond);
      WaitForPoll();
      EXPECT_EQ(TimedOperations(comm.Read()), 3u);
      EXPECT_TRUE(comm.Read().has_heartbeat);
      EXPECT_EQ(comm.Read().launches_completed, 5u);
    });
  }
}

// Several GPUs of one process: whatever context its other communicators left behind in the thread.
TEST(StreamTimerTest, AnotherGpusContextIsCurrent) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1, 0);
    StreamCommunicator other(gpu, 2, 1);  // its context stays current here
    TimeEveryCall();
    for (StreamCommunicator* each : {&comm, &other}) each->WarmUp();
    for (int i = 0; i < 3; ++i) {
      comm.Run(kMs);
      other.Run(2 * kMs);
    }
    gpu.Advance(kSecond);
    WaitForPoll();
    for (StreamCommunicator* each : {&comm, &other}) {
      EXPECT_EQ(TimedOperations(each->Read()), 3u);
      EXPECT_EQ(each->Read().launches_completed, 5u);
    }
    // The default stream is then another GPU's: refused by the driver, and given up.
    comm.UseStream(nullptr);
    for (int i = 0; i < 3; ++i) comm.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_FALSE(comm.Read().has_heartbeat);
    EXPECT_EQ(comm.Read().launches, 8u);
    ExpectEveryOperationOnce(comm.Read(), 8);
    EXPECT_TRUE(other.Read().has_heartbeat);
  });
}

TEST(StreamTimerTest, ALaunchThatEndsTwiceCountsOnce) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    void* launch = comm.StartLaunch(nullptr);
    gpu.Launch(comm.stream(), kMs);
    comm.StopLaunch(launch);
    comm.StopLaunch(launch);
    comm.StopLaunch(comm.StartLaunch(nullptr));
    comm.StopLaunch(launch);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(comm.Read().launches, 2u);
    EXPECT_EQ(comm.Read().launches_completed, 2u);
    EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kRepeatedStop), 2u);
  });
}

TEST(StreamTimerTest, WhenNoPairIsFreeTheCallIsNotSampled) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    for (int i = 0; i < 50; ++i) comm.Run(kMs);
    EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kNotSampled), 2u + 50 - 8);
    gpu.Advance(kSecond);
    WaitForPoll();
    const LatencySnapshot latency = StreamLatency(comm.Read(), "AllReduce");
    EXPECT_EQ(latency.histogram.Count(), 8u);
    ExpectSeconds(latency.histogram.sum_ns, 8 * kMs, 8);  // each its own, none the queue's
    ExpectEveryOperationOnce(comm.Read(), 52);
  });
}

// After rest everything would be timed: a burst must not cost the GPU more than the budget.
TEST(StreamTimerTest, ABurstAfterRestKeepsTheBudget) {
  RunWithGpu([](FakeCuda& gpu) {
    SlowClock();  // the budget is of a second
    StreamCommunicator comm(gpu, 1);
    TimeEveryCall();
    comm.WarmUp();
    for (int i = 0; i < 300; ++i) {
      comm.Run(1000);
      if (i % 8 == 7) {
        gpu.Advance(kMs);
        WaitForPoll();
      }
    }
    gpu.Advance(kMs);
    WaitForPoll();
    EXPECT_EQ(TimedOperations(comm.Read()), 100u);
    ExpectEveryOperationOnce(comm.Read(), 302);
  });
}

TEST(StreamTimerTest, KernelTimingHasAHeartbeatAndNoPairs) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        for (int i = 0; i < 10; ++i) comm.Run(kMs);
        WaitForPoll();
        EXPECT_TRUE(comm.Read().has_heartbeat);
        EXPECT_EQ(comm.Read().launches, 10u);
        EXPECT_NE(comm.Read().oldest_inflight_realtime_ns, 0);
        gpu.Advance(kSecond);
        WaitForPoll();
        EXPECT_EQ(comm.Read().launches_completed, 10u);
        EXPECT_EQ(gpu.Calls("cuEventElapsedTime"), 0u);
        EXPECT_EQ(gpu.EventsAlive(), 27);
        EXPECT_EQ(Timed(comm.Read(), LatencyKind::kDurationStream), 0u);
        EXPECT_EQ(ReadSnapshot().duration_source, "kernel");
        EXPECT_EQ(ReadSnapshot().sampling_exponent, -1);
      },
      {{"NCCL_PULSE_TIMING", "kernel"}});
}

TEST(StreamTimerTest, OffAsksTheDriverForNamesAlone) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        const uint64_t for_names = gpu.Calls();
        EXPECT_EQ(gpu.EventsAlive(), 0);
        for (int i = 0; i < 10; ++i) comm.Run(kMs);
        gpu.Advance(kSecond);
        WaitForPoll();
        comm.Finalize();
        EXPECT_EQ(gpu.Calls(), for_names);
        EXPECT_EQ(comm.Read().launches, 10u);
        EXPECT_FALSE(comm.Read().has_heartbeat);
        EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kNotTimed), 10u);
        EXPECT_EQ(ReadSnapshot().duration_source, "none");
      },
      {{"NCCL_PULSE_TIMING", "off"}});
}

TEST(StreamTimerTest, WithoutADriverNothingIsTimedAndItSaysSo) {
  RunInChild({}, [] {
    if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) SkipScenario("this machine has a driver");
    NcclCommunicator comm(1);
    for (int i = 0; i < 10; ++i) comm.Enqueue();
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kNotTimed), 10u);
    EXPECT_EQ(Find(snapshot, 1).launches, 10u);
    EXPECT_FALSE(Find(snapshot, 1).has_heartbeat);
    EXPECT_EQ(snapshot.duration_source, "none");
    EXPECT_EQ(snapshot.sampling_exponent, -1);
    int lines = 0;
    for (const std::string& line : TakeLog()) {
      if (line.find("durations: none") != std::string::npos) ++lines;
    }
    EXPECT_EQ(lines, 1);
  });
}

// Before API v5 launches are not seen.
TEST(StreamTimerTest, AnOlderApiIsNotTimed) {
  RunWithGpu([](FakeCuda& gpu) {
    const auto& profiler = ProfilerOf<abi::v4::Profiler>(4);
    void* context = nullptr;
    int mask = 0;
    profiler.init(&context, &mask, "v4", 1, 1, 2, 0, Logger);
    for (uint64_t i = 0; i < 5; ++i) {
      abi::v4::Descriptor event{};
      event.type = static_cast<uint8_t>(abi::kEventColl);
      event.coll.func = "AllReduce";
      event.coll.datatype = "ncclInt8";
      void* handle = nullptr;
      profiler.startEvent(context, &handle, &event);
      profiler.stopEvent(handle);
    }
    WaitForPoll();
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kNotTimed), 5u);
    EXPECT_FALSE(Find(snapshot, 1).has_heartbeat);
    EXPECT_EQ(snapshot.duration_source, "none");
    EXPECT_EQ(gpu.EventsCreated(), 0u);
  });
}

}  // namespace
}  // namespace nccl_pulse
