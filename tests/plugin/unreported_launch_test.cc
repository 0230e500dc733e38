// Launches that NCCL does not report, where the end of their group tells of them: followed and timed
// like others. Where it does not, nothing is claimed.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "plugin/tracker/awaited_ends.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

using Call = StreamCommunicator::Call;

struct Seen {
  uint64_t launches, completed, unreported;
  bool operator==(const Seen& other) const {
    return launches == other.launches && completed == other.completed &&
           unreported == other.unreported;
  }
  friend std::ostream& operator<<(std::ostream& out, const Seen& seen) {
    return out << seen.launches << " launches, " << seen.completed << " completed, "
               << seen.unreported << " calls unreported";
  }
};

Seen See(const StreamCommunicator& comm) {
  WaitForPoll();
  const CommunicatorSnapshot measured = comm.Read();
  return {measured.launches, measured.launches_completed, measured.unreported_calls};
}

// Every call has a duration, or one reason.
void ExpectEveryCallOnce(const StreamCommunicator& comm) {
  EXPECT_TRUE(WaitUntil([&] {
    const CommunicatorSnapshot measured = comm.Read();
    return TimedOperations(measured) + Untimed(measured) >= Calls(measured);
  }));
  // And no more than that, however often it is looked at.
  for (int i = 0; i < 20; ++i) {
    AdvanceClock(kSecond);
    WaitForPoll();
  }
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), Calls(measured));
}

// One that is made by a thread which may be NCCL's own.
std::unique_ptr<StreamCommunicator> MakeElsewhere(FakeCuda& gpu, uint64_t comm_id) {
  std::unique_ptr<StreamCommunicator> comm;
  std::thread([&] { comm = std::make_unique<StreamCommunicator>(gpu, comm_id); }).join();
  gpu.MakeCurrent(comm->gpu_context());
  return comm;
}

// From now on that operation is known to be hidden. Two launches, which have completed, and one call
// that stays unreported.
void LearnHidden(FakeCuda& gpu, StreamCommunicator& comm, const char* op = "Broadcast") {
  comm.Run(0, "AllGather");
  comm.RunUnreported(0, op);
  comm.Run(0, "AllGather");
  gpu.Advance(kMs);
  EXPECT_EQ(See(comm).unreported, 0u);
}

// ---- what is seen -------------------------------------------------------------------------------

TEST(UnreportedLaunchTest, IsInFlightUntilItHasCompleted) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

TEST(UnreportedLaunchTest, HasADurationWhenItsCallIsSampled) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    LearnHidden(gpu, comm);
    TimeEveryCall();
    comm.RunUnreported(0);  // the second of its kind
    constexpr int kTimed = 20;
    for (int i = 0; i < kTimed; ++i) {
      comm.RunUnreported(7 * kMs);
      gpu.Advance(7 * kMs);
      WaitForPoll();
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
  });
}

// A symmetric-memory kernel this time, an ordinary one the next.
TEST(UnreportedLaunchTest, OneThatIsReportedAfterAllIsTimedOnce) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    LearnHidden(gpu, comm, "AllReduce");
    TimeEveryCall();
    for (int i = 0; i < 2; ++i) comm.RunUnreported(0, "AllReduce");
    for (int i = 0; i < 30; ++i) {
      comm.Run(3 * kMs);
      gpu.Advance(3 * kMs);
      WaitForPoll();
    }
    EXPECT_EQ(See(comm), (Seen{34, 34, 0}));
    const LatencySnapshot latency = StreamLatency(comm.Read(), "AllReduce");
    EXPECT_NEAR(static_cast<double>(latency.histogram.sum_ns), 30 * 3e6, 1e4);
    ExpectEveryCallOnce(comm);
  });
}

// The event in front of it may be passed before what another stream has to do first.
TEST(UnreportedLaunchTest, IsNotTimedOnAnotherStreamThanTheOneBefore) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// NCCL reports one launch of the group: so its end is behind all of them.
TEST(UnreportedLaunchTest, OfAGroupOfBothIsBehindTheReportedOne) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// ---- what it costs the others -------------------------------------------------------------------

TEST(UnreportedLaunchTest, EndsAreAwaitedWhereTheyAreOfUse) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// ---- where the end says nothing -----------------------------------------------------------------

TEST(UnreportedLaunchTest, StreamsInCaptureAreNotTouched) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

TEST(UnreportedLaunchTest, OfANonBlockingCommunicatorIsUnknown) {
  RunWithGpu([](FakeCuda& gpu) {
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
  });
}

// NCCL may be about to report it.
TEST(UnreportedLaunchTest, TheLastCallHasNoReasonYet) {
  RunWithGpu([](FakeCuda& gpu) {
    const auto comm = MakeElsewhere(gpu, 1);
    for (int i = 0; i < 3; ++i) comm->RunUnreported(kMs);
    for (int i = 0; i < 100; ++i) {
      AdvanceClock(kSecond);
      WaitForPoll();
    }
    EXPECT_EQ(Untimed(comm->Read(), UntimedReason::kUnreported), 2u);
  });
}

// As long as nothing tells where it launches.
TEST(UnreportedLaunchTest, IsUnknownUntilTheThreadThatLaunchesIsKnown) {
  RunWithGpu([](FakeCuda& gpu) {
    const auto comm = MakeElsewhere(gpu, 1);
    comm->RunUnreported(kMs);
    EXPECT_EQ(See(*comm).unreported, 1u);
    comm->Run(kMs);  // on the thread that calls, in its group
    EXPECT_EQ(See(*comm).unreported, 0u);
    comm->RunUnreported(kMs);
    EXPECT_EQ(See(*comm).unreported, 1u) << "nor that its operation is hidden";
    comm->Run(kMs);
    comm->RunUnreported(kMs);
    EXPECT_EQ(See(*comm).unreported, 0u);
    EXPECT_EQ(comm->Read().launches, 3u);
    gpu.Advance(kSecond);
    ExpectEveryCallOnce(*comm);
  });
}

// The very first call may have failed within NCCL, whatever init said.
TEST(UnreportedLaunchTest, NothingIsBelievedBeforeAReportedLaunch) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// Such a call launches nothing, and the end of its group comes as ever.
TEST(UnreportedLaunchTest, ACallThatFailsIsNotLaunched) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
    gpu.Advance(kSecond);
    EXPECT_EQ(See(comm), (Seen{2, 2, 0}));
    fail("AllGather");
    EXPECT_EQ(See(comm), (Seen{2, 2, 1}));
  });
}

// One to itself, in place.
TEST(UnreportedLaunchTest, ASendThatLaunchesNothingIsNotLaunched) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    for (uint64_t i = 1; i < 4; ++i) {
      comm.Run(0);
      gpu.Advance(kSecond);
      comm.RunUnreported(0, "Send");
      EXPECT_EQ(See(comm), (Seen{i, i, 1}));
    }
  });
}

// Its operations are reported behind the end of the group, where graphs have been captured or
// CUDA_LAUNCH_BLOCKING is set.
TEST(UnreportedLaunchTest, AGroupIsLaunchedOnceThoughItIsReportedLate) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// ncclGroupStart, a call, ncclGroupStart, a call, ncclGroupEnd: here GroupApi stops, and nothing has
// been launched.
TEST(UnreportedLaunchTest, TheEndOfAnInnerGroupIsNotBelieved) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// A group's end is reported once, for the communicator of its first call.
TEST(UnreportedLaunchTest, OfAGroupOfSeveralCommunicatorsTheFirstIsFollowed) {
  RunWithGpu([](FakeCuda& gpu) {
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
  });
}

// The calls that stand are another thread's, whose group has not ended.
TEST(UnreportedLaunchTest, TheEndOfAnotherThreadsGroupSaysNothing) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
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
  });
}

// The default stream is one of whichever context is current.
TEST(UnreportedLaunchTest, OnTheDefaultStreamItsContextMustBeCurrent) {
  RunWithGpu([](FakeCuda& gpu) {
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
  });
}

TEST(UnreportedLaunchTest, WhatTheDriverRefusesIsNotClaimed) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    LearnHidden(gpu, comm);
    TimeEveryCall();
    for (int i = 0; i < 4; ++i) {
      comm.RunUnreported(kMs);
      gpu.Advance(kSecond);
      WaitForPoll();
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
  });
}

TEST(UnreportedLaunchTest, AGroupThatOutlivesItsCommunicatorEndsNothing) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    void* group = comm.StartGroup();
    comm.MakeCall(group, "Broadcast", 4096);
    comm.Finalize();
    comm.StopGroup(group);
    EXPECT_EQ(comm.Read().launches, 0u);
    ExpectEveryCallOnce(comm);  // now that no operation can come
    EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kUnreported), 1u);
  });
}

// With kernel timing nothing is timed on streams; the launches are seen all the same.
TEST(UnreportedLaunchTest, WithKernelTimingHasNoDuration) {
  RunWithGpu(
      [](FakeCuda& gpu) {
        StreamCommunicator comm(gpu, 1);
        LearnHidden(gpu, comm);
        for (int i = 0; i < 5; ++i) comm.RunUnreported(kMs);
        gpu.Advance(kSecond);
        EXPECT_EQ(See(comm), (Seen{7, 7, 0}));
        EXPECT_TRUE(
            WaitUntil([&] { return Untimed(comm.Read(), UntimedReason::kUnreported) == 6; }));
      },
      {{"NCCL_PULSE_TIMING", "kernel"}});
}

// ---- everything at once, for a thread sanitizer to watch ----------------------------------------

TEST(UnreportedLaunchTest, CallsPollsReadsAndFinalizesAtOnce) {
  RunWithGpu([](FakeCuda& gpu) {
    constexpr int kThreads = 4;
    constexpr int kRounds = kSanitized ? 60 : 200;
    std::vector<std::unique_ptr<StreamCommunicator>> comms;
    for (uint64_t i = 0; i < kThreads; ++i) {
      comms.push_back(std::make_unique<StreamCommunicator>(gpu, 1 + i, static_cast<int>(i)));
      if (i % 2 == 1) comms.back()->LaunchElsewhere();
      gpu.MakeCurrent(comms.back()->gpu_context());
      LearnHidden(gpu, *comms.back());
    }
    TimeEveryCall();
    std::atomic<bool> end{false};
    std::thread gpu_time([&] {
      while (!end) {
        gpu.Advance(100000);
        AdvanceClock(kMs);
        std::this_thread::yield();
      }
    });
    std::thread reader([&] {
      while (!end) {
        for (const CommunicatorSnapshot& measured : ReadSnapshot().communicators) {
          EXPECT_LE(measured.launches_completed, measured.launches);
          EXPECT_LE(TimedOperations(measured) + Untimed(measured), Calls(measured) + 1);
        }
      }
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        StreamCommunicator& comm = *comms[static_cast<size_t>(i)];
        for (int round = 0; round < kRounds; ++round) {
          comm.Run(1000);
          comm.RunUnreported(1000);
          void* group = comm.StartGroup(false, 2);
          const Call reported = comm.MakeCall(group, "AllReduce", 100);
          comm.MakeCall(group, "Broadcast", 100);
          comm.Launch(group, 1000);
          comm.Report(reported);
          comm.StopGroup(group);
        }
        comm.Run(1000);
      });
    }
    for (std::thread& thread : threads) thread.join();
    end = true;
    gpu_time.join();
    reader.join();
    gpu.Advance(kSecond);
    for (int i = 0; i < kThreads; ++i) {
      const StreamCommunicator& comm = *comms[static_cast<size_t>(i)];
      // Of a non-blocking one those that NCCL reports.
      const auto launches = static_cast<uint64_t>(i % 2 == 1 ? 2 * kRounds + 3 : 4 * kRounds + 3);
      EXPECT_EQ(See(comm), (Seen{launches, launches, 0}));
      ExpectEveryCallOnce(comm);
    }
    EXPECT_EQ(IgnoredByName(ReadSnapshot()), (std::map<std::string, uint64_t>{}));
  });
}

}  // namespace
}  // namespace nccl_pulse
