// Launches that NCCL does not report, where the end of their group tells of them: followed and
// timed like others. Where it does not, nothing is claimed.
#include <gtest/gtest.h>

#include "plugin/tracker/awaited_ends.h"
#include "tests/plugin/stream_job.h"
#include "tests/plugin/unreported_launch_checks.h"

namespace nccl_pulse {
namespace {

TEST_WITH_STREAM(UnreportedLaunchTest, IsInFlightUntilItHasCompleted) {
  LearnHidden(gpu, comm);
  LearnHidden(gpu, comm, "Reduce");
  comm.RunUnreported(5 * kMs);
  EXPECT_EQ(See(comm), (Seen{5, 4, 0}));
  const int64_t since = comm.Read().oldest_inflight_realtime_ns;
  EXPECT_NE(since, 0);
  AdvanceClock(30 * kSecond);
  comm.RunUnreported(5 * kMs, "Reduce");
  EXPECT_EQ(See(comm), (Seen{6, 4, 0}));
  EXPECT_NEAR(static_cast<double>(comm.Read().oldest_inflight_realtime_ns - since), 0, 1e8);
  gpu.Advance(5 * kMs);
  comm.Run(kMs);  // one that is reported
  EXPECT_EQ(See(comm).launches, 7u);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{7, 7, 0}));
  EXPECT_EQ(comm.Read().oldest_inflight_realtime_ns, 0);
  ExpectEveryCallOnce(comm);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{}));
}

TEST_WITH_STREAM(UnreportedLaunchTest, HasADurationWhenItsCallIsSampled) {
  LearnHidden(gpu, comm);
  TimeEveryCall();
  comm.RunUnreported(0);  // the second of its kind
  constexpr int kTimed = 20;
  for (int i = 0; i < kTimed; ++i) {
    comm.RunUnreported(7 * kMs);
    AdvanceAndPoll(gpu, 7 * kMs);
  }
  const CommunicatorSnapshot measured = comm.Read();
  const LatencySnapshot latency = StreamLatency(measured, "Broadcast");
  EXPECT_EQ(latency.histogram.Count(), static_cast<uint64_t>(kTimed));
  EXPECT_NEAR(static_cast<double>(latency.histogram.sum_ns), 7e6 * kTimed, 1e4);
  EXPECT_EQ(latency.bytes, 4096u * kTimed);
  EXPECT_EQ(Untimed(measured, UntimedReason::kNotSampled), 3u);
  ASSERT_FALSE(measured.timed_calls.empty());
  EXPECT_EQ(measured.timed_calls[0].call_number, 2u);
  ExpectEveryCallOnce(comm);
}

// An ordinary kernel of the same operation in between, in another size, says nothing of it.
TEST_WITH_STREAM(UnreportedLaunchTest, IsLearntBesideItsOwnOperationInAnotherSize) {
  comm.RunUnreported(0, "AllReduce");
  comm.Run(0, "AllReduce", 4);
  comm.RunUnreported(0, "AllReduce");
  gpu.Advance(kMs);
  EXPECT_EQ(See(comm), (Seen{2, 2, 0}));
}

// What had no launch once in one size says nothing of a size that has had one since.
TEST_WITH_STREAM(UnreportedLaunchTest, IsNotLearntOfASizeThatHasLaunches) {
  comm.RunUnreported(0, "AllReduce", 8192);
  comm.Run(0, "AllReduce", 4096);
  comm.RunUnreported(0, "AllReduce", 4096);
  gpu.Advance(kMs);
  EXPECT_EQ(See(comm), (Seen{1, 1, 1}));
}

// A symmetric-memory kernel this time, an ordinary one the next.
TEST_WITH_STREAM(UnreportedLaunchTest, OneThatIsReportedAfterAllIsTimedOnce) {
  LearnHidden(gpu, comm, "AllReduce");
  TimeEveryCall();
  for (int i = 0; i < 2; ++i) comm.RunUnreported(0, "AllReduce");
  for (int i = 0; i < 30; ++i) {
    comm.Run(3 * kMs);
    AdvanceAndPoll(gpu, 3 * kMs);
  }
  EXPECT_EQ(See(comm), (Seen{34, 34, 0}));
  const LatencySnapshot latency = StreamLatency(comm.Read(), "AllReduce");
  EXPECT_NEAR(static_cast<double>(latency.histogram.sum_ns), 30 * 3e6, 1e4);
  ExpectEveryCallOnce(comm);
}

// The event in front of it may be passed before what another stream has to do first.
TEST_WITH_STREAM(UnreportedLaunchTest, IsNotTimedOnAnotherStreamThanTheOneBefore) {
  LearnHidden(gpu, comm);
  TimeEveryCall();
  for (int i = 0; i < 2; ++i) comm.RunUnreported(0);
  const uint64_t timed = TimedOperations(comm.Read());
  const FakeCuda::Stream one = comm.stream();
  const FakeCuda::Stream other = gpu.CreateStream(comm.gpu_context());
  for (int i = 0; i < 6; ++i) {
    comm.UseStream(i % 2 == 0 ? other : one);
    comm.RunUnreported(9 * kMs);
  }
  EXPECT_EQ(See(comm).launches, 10u);
  EXPECT_LE(See(comm).completed, 4u);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{10, 10, 0}));
  EXPECT_LE(TimedOperations(comm.Read()), timed + 1);
  ExpectEveryCallOnce(comm);
}

// NCCL reports one launch of the group: so its end is behind all of them.
TEST_WITH_STREAM(UnreportedLaunchTest, OfAGroupOfBothIsBehindTheReportedOne) {
  const FakeCuda::Stream first = comm.stream();
  const FakeCuda::Stream second = gpu.CreateStream(comm.gpu_context());
  for (int i = 0; i < 3; ++i) {
    void* group = comm.StartGroup(false, 2);
    const Call reported = comm.MakeCall(group, "AllReduce", 4096);
    comm.UseStream(second);  // several streams in a group: they wait for each other
    comm.MakeCall(group, "Broadcast", 4096);
    comm.MakeCall(group, "Reduce", 4096);
    comm.Launch(group, kMs, first);
    comm.Report(reported);
    comm.LaunchUnreported(5 * kMs, first);
    gpu.Wait(second, first);
    comm.StopGroup(group);
    comm.UseStream(first);
    const auto before = static_cast<uint64_t>(2 * i);
    gpu.Advance(kMs);
    const Seen seen = See(comm);
    EXPECT_EQ(seen.launches, before + 2);
    EXPECT_LT(seen.completed, before + 2);
    EXPECT_EQ(seen.unreported, 0u);
    gpu.Advance(5 * kMs);
    EXPECT_EQ(See(comm), (Seen{before + 2, before + 2, 0}));
  }
  ExpectEveryCallOnce(comm);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kUnreported), 6u);
}

// PyTorch's backend nccl2 (torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.cpp) makes of a list
// of tensors a group of Reduces or Broadcasts, one with each rank as the root; its barrier is an
// AllReduce of four bytes. The end of a group of the application's is not believed, so the
// Broadcasts stand until then.
TEST_WITH_STREAM(UnreportedLaunchTest, ListsOfTensorsAreGroups) {
  LearnHidden(gpu, comm);
  constexpr int kRanks = 4, kSteps = 3;
  for (int step = 0; step < kSteps; ++step) {
    comm.RunGroup(kMs, std::vector<Call>(kRanks, Call{"Reduce", 4096}), 2);
    // A look before their reports would count them as unreported until the next launch.
    EXPECT_EQ(See(comm).unreported, 0u);
    void* const group = comm.StartGroup(false, 2);
    for (int root = 0; root < kRanks; ++root) {
      comm.MakeCall(group, "Broadcast", 4096, false, root);
    }
    comm.LaunchUnreported(kMs);
    comm.StopGroup(group);
    EXPECT_EQ(See(comm).unreported, static_cast<uint64_t>(kRanks));
    comm.Run(kMs, "AllReduce", 4);
  }
  EXPECT_EQ(See(comm), (Seen{2 + 2 * kSteps, 2, 0}));
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{2 + 2 * kSteps, 2 + 2 * kSteps, 0}));
  EXPECT_EQ(Calls(comm.Read()), 3u + kSteps * (2 * kRanks + 1));
  ExpectEveryCallOnce(comm);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{}));
}

TEST_WITH_STREAM(UnreportedLaunchTest, EndsAreAwaitedWhereTheyAreOfUse) {
  const auto run = [&] {
    void* group = comm.StartGroup();
    const Call call = comm.MakeCall(group, "AllReduce", 4096);
    comm.Launch(group, 1000);
    comm.Report(call);
    comm.StopGroup(group);
    gpu.Advance(1000);
    return group != nullptr;
  };
  uint32_t awaited = 0;
  while (run()) ++awaited;
  EXPECT_EQ(awaited, AwaitedEnds::kFirst);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(run());
  // One comes late: it is not seen, and once the operation is known to be hidden they are.
  comm.RunUnreported(kMs);
  EXPECT_EQ(See(comm).unreported, 1u);
  comm.RunUnreported(kMs);
  EXPECT_EQ(See(comm).unreported, 2u);
  comm.RunUnreported(kMs);
  EXPECT_EQ(See(comm).unreported, 3u);
  EXPECT_TRUE(run());
  comm.RunUnreported(kMs);
  EXPECT_EQ(See(comm).unreported, 0u);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm).unreported, 0u);
  ExpectEveryCallOnce(comm);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kUnreported), 3u);
}

}  // namespace
}  // namespace nccl_pulse
