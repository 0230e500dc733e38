// Groups whose end says nothing about a launch: nothing is claimed.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/plugin/stream_job.h"
#include "tests/plugin/unreported_launch_checks.h"

namespace nccl_pulse {
namespace {

TEST_WITH_STREAM(UnreportedLaunchTest, StreamsInCaptureAreNotTouched) {
  LearnHidden(gpu, comm);
  TimeEveryCall();
  for (int i = 0; i < 4; ++i) comm.RunUnreported(0);
  const Seen before = See(comm);
  gpu.BeginCapture(comm.stream());
  void* group = comm.StartGroup(true);
  comm.MakeCall(group, "Broadcast", 4096, true);
  comm.StopGroup(group);
  // Begun after the call, which NCCL therefore did not call captured.
  group = comm.StartGroup();
  comm.MakeCall(group, "Broadcast", 4096);
  comm.StopGroup(group);
  EXPECT_EQ(gpu.RecordsIntoCaptures(), 0u);
  EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  EXPECT_EQ(See(comm), (Seen{before.launches, before.completed, 1}));
}

TEST_WITH_GPU(UnreportedLaunchTest, OfANonBlockingCommunicatorIsUnknown) {
  const auto comm = MakeElsewhere(gpu, 1);
  comm->LaunchElsewhere();
  TimeEveryCall();
  for (uint64_t i = 0; i < 5; ++i) {
    comm->Run(kMs);
    void* group = comm->StartGroup();
    comm->MakeCall(group, "Broadcast", 4096);
    comm->StopGroup(group);  // before the launch
    EXPECT_EQ(See(*comm).unreported, 1u);
    EXPECT_EQ(comm->Read().launches, i + 1);
    comm->LaunchUnreported(kMs);
    gpu.Advance(kSecond);
  }
  comm->Run(kMs);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(*comm), (Seen{6, 6, 0}));
  ExpectEveryCallOnce(*comm);
  EXPECT_EQ(Untimed(comm->Read(), UntimedReason::kUnreported), 5u);
}

// The driver may keep a launch waiting for long, and the system a thread. The background thread looks
// meanwhile, at the operations of which only the calls are known.
TEST_WITH_GPU(UnreportedLaunchTest, AnOperationWhoseLaunchTakesLongIsCountedOnce) {
  const auto wait = [] {
    for (int i = 0; i < 50; ++i) AdvanceClockAndPoll(kSecond);
  };
  for (const bool elsewhere : {false, true}) {
    StreamCommunicator comm(gpu, elsewhere ? 2 : 1);
    if (elsewhere) comm.LaunchElsewhere();
    LearnHidden(gpu, comm);
    for (const int calls : {1, 2}) {
      void* const group = comm.StartGroup(false, calls);
      std::vector<Call> made;
      for (int i = 0; i < calls; ++i) made.push_back(comm.MakeCall(group, "AllReduce", 4096));
      wait();
      void* const launch = comm.StartLaunch(group);
      wait();
      comm.StopLaunch(launch);
      wait();
      for (const Call& call : made) comm.Report(call);
      comm.StopGroup(group);
    }
    gpu.Advance(kSecond);
    ExpectEveryCallOnce(comm);
    EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kUnreported),
              1u);  // the first one that is hidden
  }
}

// NCCL may be about to report it.
TEST_WITH_GPU(UnreportedLaunchTest, TheLastCallHasNoReasonYet) {
  const auto comm = MakeElsewhere(gpu, 1);
  for (int i = 0; i < 3; ++i) comm->RunUnreported(kMs);
  for (int i = 0; i < 100; ++i) AdvanceClockAndPoll(kSecond);
  EXPECT_EQ(Untimed(comm->Read(), UntimedReason::kUnreported), 2u);
}

// As long as nothing tells where it launches.
TEST_WITH_GPU(UnreportedLaunchTest, IsUnknownUntilTheThreadThatLaunchesIsKnown) {
  const auto comm = MakeElsewhere(gpu, 1);
  comm->RunUnreported(kMs);
  EXPECT_EQ(See(*comm).unreported, 1u);
  comm->Run(kMs);  // on the thread that calls, in its group
  EXPECT_EQ(See(*comm).unreported, 0u);
  comm->RunUnreported(kMs);
  EXPECT_EQ(See(*comm).unreported, 0u) << "the second without a launch";
  EXPECT_EQ(comm->Read().launches, 2u);
  gpu.Advance(kSecond);
  ExpectEveryCallOnce(*comm);
}

// The very first call may have failed within NCCL, whatever init said.
TEST_WITH_STREAM(UnreportedLaunchTest, NothingIsBelievedBeforeAReportedLaunch) {
  for (uint64_t calls = 1; calls <= 3; ++calls) {
    comm.RunUnreported(kMs);
    EXPECT_EQ(See(comm), (Seen{0, 0, calls}));
  }
  comm.LaunchElsewhere();
  for (int i = 0; i < 3; ++i) {
    comm.Run(kMs);
    comm.RunUnreported(kMs);
    EXPECT_EQ(See(comm).unreported, 1u) << "on a thread of NCCL's";
  }
}

// Such a call launches nothing, and the end of its group comes as ever.
TEST_WITH_STREAM(UnreportedLaunchTest, ACallThatFailsIsNotLaunched) {
  const auto fail = [&](const char* op) {
    void* group = comm.StartGroup();
    comm.MakeCall(group, op, 4096);
    comm.StopGroup(group);
  };
  comm.Run(0);
  fail("AllGather");
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{1, 1, 1}));
  fail("AllGather");
  EXPECT_EQ(See(comm), (Seen{1, 1, 2}));
  comm.Run(0, "AllGather");  // the next try
  comm.Run(0, "AllGather", 8192);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{3, 3, 0}));
  fail("AllGather");
  EXPECT_EQ(See(comm), (Seen{3, 3, 1}));
}

// One to itself, in place.
TEST_WITH_STREAM(UnreportedLaunchTest, ASendThatLaunchesNothingIsNotLaunched) {
  for (uint64_t i = 1; i < 4; ++i) {
    comm.Run(0);
    gpu.Advance(kSecond);
    comm.RunUnreported(0, "Send");
    EXPECT_EQ(See(comm), (Seen{i, i, 1}));
  }
}

// Its operations are reported behind the end of the group, where graphs have been captured or
// CUDA_LAUNCH_BLOCKING is set.
TEST_WITH_STREAM(UnreportedLaunchTest, AGroupIsLaunchedOnceThoughItIsReportedLate) {
  LearnHidden(gpu, comm);
  void* group = comm.StartGroup(false, 2);
  std::vector<Call> calls;
  for (int i = 0; i < 2; ++i) calls.push_back(comm.MakeCall(group, "AllReduce", 4096));
  comm.Launch(group, kMs);
  comm.StopGroup(group);
  EXPECT_EQ(See(comm).launches, 3u);
  for (const Call& call : calls) comm.Report(call);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{3, 3, 0}));
}

// ncclGroupStart, a call, ncclGroupStart, a call, ncclGroupEnd: here GroupApi stops, and nothing
// has been launched.
TEST_WITH_STREAM(UnreportedLaunchTest, NorOfOperationsThatAreKnownToBeHidden) {
  LearnHidden(gpu, comm);
  void* group = comm.StartGroup(false, 2);
  for (int i = 0; i < 2; ++i) comm.MakeCall(group, "Broadcast", 4096);
  comm.StopGroup(group);
  EXPECT_EQ(See(comm), (Seen{2, 2, 2}));
}

TEST_WITH_STREAM(UnreportedLaunchTest, TheEndOfAnInnerGroupIsNotBelieved) {
  void* group = comm.StartGroup(false, 2);
  comm.MakeCall(group, "Broadcast", 4096);
  comm.MakeCall(group, "Broadcast", 4096);
  comm.StopGroup(group);
  EXPECT_EQ(See(comm), (Seen{0, 0, 2}));
  comm.LaunchUnreported(kMs);
  EXPECT_EQ(See(comm), (Seen{0, 0, 2}));
  // The same in two parts, and everything is reported in the end.
  std::vector<Call> calls;
  for (int part = 0; part < 2; ++part) {
    group = comm.StartGroup(false, 2);
    for (int i = 0; i < 2; ++i) calls.push_back(comm.MakeCall(group, "AllReduce", 4096));
    if (part == 0) comm.StopGroup(group);
  }
  comm.Launch(group, kMs);
  for (const Call& call : calls) comm.Report(call);
  comm.StopGroup(group);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{1, 1, 0}));
  ExpectEveryCallOnce(comm);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kUnreported), 2u);
}

// A group's end is reported once, for the communicator of its first call.
TEST_WITH_GPU(UnreportedLaunchTest, OfAGroupOfSeveralCommunicatorsTheFirstIsFollowed) {
  StreamCommunicator first(gpu, 1, 0);
  StreamCommunicator second(gpu, 2, 1);
  for (StreamCommunicator* comm : {&first, &second}) {
    gpu.MakeCurrent(comm->gpu_context());
    comm->Run(kMs);
  }
  gpu.Advance(kSecond);
  void* group = first.StartGroup(false, 2);
  const Call reported = first.MakeCall(group, "AllReduce", 4096);
  first.MakeCall(group, "Broadcast", 4096);
  second.MakeCall(group, "Broadcast", 4096);
  first.Launch(group, kMs);
  first.Report(reported);
  first.LaunchUnreported(kMs);
  second.LaunchUnreported(kMs);
  first.StopGroup(group);
  EXPECT_EQ(See(first), (Seen{3, 1, 0}));
  EXPECT_EQ(See(second), (Seen{1, 1, 1}));
  gpu.Advance(kSecond);
  EXPECT_EQ(See(first), (Seen{3, 3, 0}));
  EXPECT_EQ(See(second), (Seen{1, 1, 1}));
  second.Run(kMs);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(second), (Seen{2, 2, 0}));
  ExpectEveryCallOnce(first);
  ExpectEveryCallOnce(second);
}

// The calls that stand are another thread's, whose group has not ended.
TEST_WITH_STREAM(UnreportedLaunchTest, TheEndOfAnotherThreadsGroupSaysNothing) {
  comm.Run(kMs);
  gpu.Advance(kSecond);
  void* group = comm.StartGroup();
  void* other_group = nullptr;
  std::thread([&] {
    other_group = comm.StartGroup();
    comm.MakeCall(other_group, "Broadcast", 4096);
  }).join();
  comm.StopGroup(group);
  EXPECT_EQ(See(comm), (Seen{1, 1, 1}));
}

// The default stream is one of whichever context is current.
TEST_WITH_GPU(UnreportedLaunchTest, OnTheDefaultStreamItsContextMustBeCurrent) {
  StreamCommunicator comm(gpu, 1, 0);
  LearnHidden(gpu, comm);
  const FakeCuda::Context other = gpu.CreateContext(1);
  for (const uintptr_t handle : {0, 1, 2}) {
    auto* const stream = reinterpret_cast<void*>(handle);  // NOLINT(performance-no-int-to-ptr)
    const auto call = [&](FakeCuda::Context at_end) {
      comm.UseStream(stream);
      void* group = comm.StartGroup();
      comm.MakeCall(group, "Broadcast", 4096);
      gpu.Launch(stream, kMs);
      gpu.MakeCurrent(at_end);
      comm.StopGroup(group);
      gpu.MakeCurrent(comm.gpu_context());
    };
    const Seen before = See(comm);
    call(other);
    EXPECT_EQ(See(comm), (Seen{before.launches, before.completed, 1}));
    call(comm.gpu_context());
    EXPECT_EQ(See(comm), (Seen{before.launches + 1, before.completed, 0}));
    gpu.Advance(kSecond);
    EXPECT_EQ(See(comm), (Seen{before.launches + 1, before.launches + 1, 0}));
  }
  EXPECT_TRUE(comm.Read().has_heartbeat);
}

TEST_WITH_STREAM(UnreportedLaunchTest, WhatTheDriverRefusesIsNotClaimed) {
  LearnHidden(gpu, comm);
  TimeEveryCall();
  for (int i = 0; i < 4; ++i) {
    comm.RunUnreported(kMs);
    AdvanceAndPoll(gpu, kSecond);
  }
  gpu.Fail("cuEventRecord", FakeCuda::kContextDestroyed);
  comm.RunUnreported(kMs);
  gpu.StopFailing();
  WaitForPoll();
  EXPECT_FALSE(comm.Read().has_heartbeat);
  for (int i = 0; i < 3; ++i) comm.RunUnreported(kMs);
  comm.Run(kMs);
  ExpectEveryCallOnce(comm);
  comm.Finalize();
  ExpectEveryCallOnce(comm);
}

TEST_WITH_STREAM(UnreportedLaunchTest, AGroupThatOutlivesItsCommunicatorEndsNothing) {
  void* group = comm.StartGroup();
  comm.MakeCall(group, "Broadcast", 4096);
  comm.Finalize();
  comm.StopGroup(group);
  EXPECT_EQ(comm.Read().launches, 0u);
  ExpectEveryCallOnce(comm);  // now that no operation can come
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kUnreported), 1u);
}

// With kernel timing nothing is timed on streams; the launches are seen all the same.
TEST_WITH_STREAM(UnreportedLaunchTest, WithKernelTimingHasNoDuration,
                 {"NCCL_PULSE_TIMING", "kernel"}) {
  LearnHidden(gpu, comm);
  for (int i = 0; i < 5; ++i) comm.RunUnreported(kMs);
  gpu.Advance(kSecond);
  EXPECT_EQ(See(comm), (Seen{7, 7, 0}));
  EXPECT_TRUE(WaitUntil([&] { return Untimed(comm.Read(), UntimedReason::kUnreported) == 6; }));
}

}  // namespace
}  // namespace nccl_pulse
