// NCCL's own counter of finished work: found, proven, read, and dropped at the first contradiction.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/rank_activity.h"
#include "plugin/tracker/operation_handles.h"
#include "tests/plugin/work_job.h"

namespace nccl_pulse {
namespace {

TEST_WITH_GPU(WorkCounterTest, SwitchedOff, {"NCCL_PULSE_WORK_COUNTERS", "off"}) {
  Job job(gpu);
  job.Run();
  EXPECT_EQ(job.work().state, WorkState::kOff);
  EXPECT_EQ(gpu.Calls("cuMemRetainAllocationHandle"), 0u);
  EXPECT_EQ(gpu.Calls("cuMemcpyDtoHAsync_v2"), 0u);
}

TEST(WorkCounterTest, ProvenByThreeLooksWithMoreWorkEach) {
  for (const size_t word : {kOlderWord, kNewerWord}) {
    RunJob([word](FakeCuda& gpu, Job& job) {
      job.block().UseWord(word);
      job.See();
      EXPECT_EQ(job.work().state, WorkState::kUnknown);
      for (int i = 0; i < 2; ++i) {
        job.Run();
        job.See();
        EXPECT_EQ(job.work().state, WorkState::kCalibrating);
      }
      job.Run();
      EXPECT_EQ(job.work().state, WorkState::kProven);
      // Of what else was found nothing is held: an address, its mapping, the allocation.
      EXPECT_EQ(gpu.MemoryHeld(), 2u);
      for (int i = 0; i < 10; ++i) job.Run();
      EXPECT_EQ(job.work().state, WorkState::kProven);
    });
  }
}

TEST_WITH_JOB(WorkCounterTest, NothingIsCopiedWhileNothingIsNew) {
  job.Prove();
  const uint64_t copies = gpu.Calls("cuMemcpyDtoHAsync_v2");
  job.See();
  job.See();
  EXPECT_EQ(gpu.Calls("cuMemcpyDtoHAsync_v2"), copies);
}

TEST(WorkCounterTest, IsRefuted) {
  const struct {
    WorkRefutal refutal;
    bool is_proven;
    std::function<void(FakeCuda&, Job&)> contradict;  // before a collective
    int64_t more;                                     // what it counts beside
  } kAll[] = {
      {WorkRefutal::kNotFound, false, [](FakeCuda&, Job& job) { job.block().SetHead(1, 2); }, 0},
      {WorkRefutal::kNotMapped, false,
       [](FakeCuda& gpu, Job&) { gpu.Fail("cuMemAddressReserve", 801); }, 0},
      {WorkRefutal::kNotMapped, false, [](FakeCuda& gpu, Job&) { gpu.Fail("cuMemMap", 801); }, 0},
      {WorkRefutal::kNotMapped, false, [](FakeCuda& gpu, Job&) { gpu.Fail("cuMemSetAccess", 801); },
       0},
      {WorkRefutal::kDiffers, false, [](FakeCuda&, Job& job) { job.Run(); }, -1},
      {WorkRefutal::kDiffers, true, [](FakeCuda&, Job&) {}, 1},
      {WorkRefutal::kSteppedBack, true, [](FakeCuda&, Job&) {}, -3},
      {WorkRefutal::kMoved, true, [](FakeCuda&, Job& job) { job.block().SetHead(0, 3); }, 0},
      {WorkRefutal::kCopyFailed, true,
       [](FakeCuda& gpu, Job&) { gpu.Fail("cuMemcpyDtoHAsync_v2", 1); }, 0},
      {WorkRefutal::kPointToPoint, true,
       [](FakeCuda&, Job& job) {
         job.comm().Run(0, "Send");
         job.See();
       },
       0},
      {WorkRefutal::kBehind, true,  // it does not count what is complete
       [](FakeCuda& gpu, Job& job) {
         job.comm().Run(0);
         gpu.Advance(kMs);
         job.See();
       },
       0},
  };
  for (const auto& each : kAll) {
    RunJob([&each](FakeCuda& gpu, Job& job) {
      if (each.is_proven) job.Prove();
      const std::string said = CaptureStandardError([&] {
        each.contradict(gpu, job);
        job.Run(each.more);
      });
      gpu.StopFailing();
      job.ExpectRefuted(each.refutal);
      const bool is_usual = each.refutal == WorkRefutal::kNotFound ||
                            each.refutal == WorkRefutal::kNotMapped ||
                            each.refutal == WorkRefutal::kPointToPoint;
      const std::string warning =
          std::string("its work counter is refuted, reason ") + WorkRefutalName(each.refutal);
      EXPECT_EQ(said.find(warning) == said.npos, is_usual) << said;
    });
  }
}

TEST_WITH_GPU(WorkCounterTest, NotMappedWhereItIsNoAllocationOfItsOwn) {
  Job job(gpu, /*can_map=*/false);
  job.Run();
  job.ExpectRefuted(WorkRefutal::kNotMapped);
}

TEST_WITH_JOB(WorkCounterTest, RunsAheadBehindWorkThatDoesNotEnd) {
  job.Prove();
  job.comm().Run(FakeCuda::kForever);
  job.See();
  job.block().Finish(2, 3);
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);  // an operation may not have been reported yet
  job.comm().Run(0);
  job.See();
  job.ExpectRefuted(WorkRefutal::kAhead);
  gpu.Release(job.comm().stream());
}

TEST_WITH_JOB(WorkCounterTest, WorkInFlightContradictsNothing) {
  job.Prove();
  for (int i = 0; i < 5; ++i) {
    job.comm().Run(FakeCuda::kForever);
    job.See();
    job.block().Finish();
    job.See();  // it has ended, and the event behind it has not been reached
    gpu.Release(job.comm().stream());
    job.See();
    EXPECT_EQ(job.work().state, WorkState::kProven);
  }
}

TEST_WITH_JOB(WorkCounterTest, GroupsCount) {
  for (int i = 0; i < 3; ++i) {
    job.comm().RunGroup(0, {{"AllReduce", 64}, {"AllReduce", 128}, {"AllGather", 64}});
    job.block().Finish(2, 3);
    job.See();
  }
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

// What stops is this part alone: launches are followed, and nothing is claimed of the counter.
TEST(WorkCounterTest, ADriverThatBlocksStopsTheReadingAlone) {
  for (const char* function : {"cuMemMap", "cuMemcpyDtoHAsync_v2", "cuStreamQuery"}) {
    RunJob([function](FakeCuda& gpu, Job& job) {
      const bool is_proven = strcmp(function, "cuMemMap") != 0;
      if (is_proven) job.Prove();
      gpu.Block(function);
      job.comm().Run(0);
      gpu.Advance(kMs);
      ASSERT_TRUE(WaitUntil([&] {
        AdvanceClock(100 * kMs);
        return gpu.IsBlocked();
      })) << function;
      AdvanceClockAndPoll(3 * kSecond);
      EXPECT_EQ(job.work().state, WorkState::kStuck) << function;
      job.comm().Run(0);
      AdvanceAndPoll(gpu, kMs);
      EXPECT_EQ(job.comm().Read().launches_completed, job.comm().Read().launches) << function;
      // Complete launches are counted: a look between the two would refute the counter.
      job.block().Finish(2, 2);
      gpu.Unblock();
      job.See();
      EXPECT_EQ(job.work().state, is_proven ? WorkState::kProven : WorkState::kCalibrating)
          << function;
    });
  }
}

TEST_WITH_JOB(WorkCounterTest, ACopyThatDoesNotEndSaysNothing) {
  job.Prove();
  gpu.HoldCopies(true);
  job.Run();
  AdvanceClock(3 * kSecond);
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kStuck);
  gpu.HoldCopies(false);
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

TEST_WITH_JOB(WorkCounterTest, GoneWithItsCommunicator) {
  job.Prove();
  job.block().Free();
  job.Run();  // the copy is of the memory that is held
  EXPECT_EQ(job.work().state, WorkState::kProven);
  job.comm().Finalize();
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kGone);
  EXPECT_EQ(gpu.MemoryHeld(), 0u);
}

TEST_WITH_JOB(WorkCounterTest, StaysMappedWhileItIsCopied) {
  job.Prove();
  gpu.HoldCopies(true);
  job.Run();
  job.comm().Finalize();
  job.See();
  EXPECT_EQ(gpu.MemoryHeld(), 2u);
  gpu.HoldCopies(false);
  job.See();
  EXPECT_EQ(gpu.MemoryHeld(), 0u);
  EXPECT_EQ(job.work().state, WorkState::kGone);
}

TEST(WorkCounterTest, ManyLivesHoldNothing) {
  RunJob([](FakeCuda& gpu, Job& first) {
    first.Prove();
    for (int i = 0; i < 20; ++i) {
      Job job(gpu);
      job.comm().Run(0);
      if (i % 2 == 0) job.See();
      job.block().Free();
      job.comm().Finalize();
    }
    first.See();
    EXPECT_EQ(gpu.MemoryHeld(), 2u);  // the first one's
  });
}

TEST_WITH_JOB(WorkCounterTest, ResetContextIsLeftAlone) {
  job.Prove();
  const uint64_t copies = gpu.Calls("cuMemcpyDtoHAsync_v2");
  gpu.ResetContext(job.comm().gpu_context());
  job.Capture();  // else there would be nothing new to copy
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kRefuted);
  EXPECT_EQ(gpu.Calls("cuMemcpyDtoHAsync_v2"), copies);
  EXPECT_EQ(gpu.MemoryHeld(), 0u);
}

// More often than there are contexts that can be read.
TEST_WITH_GPU(WorkCounterTest, ProvenAfterEachReset) {
  FakeCuda::Context const context = gpu.CreateContext(0);
  for (uint64_t i = 1; i <= 20; ++i) {
    Job job(gpu, true, context, i);
    job.Prove();
    job.block().Free();
    job.comm().Finalize();
    job.See();
    gpu.ResetContext(context);
  }
  EXPECT_EQ(gpu.MemoryHeld(), 0u);
}

TEST_WITH_JOB(WorkCounterTest, ReplaysAreCountedExactly) {
  job.Prove();
  job.Capture();
  for (int i = 0; i < 50; ++i) {
    job.block().Finish(i % 2 == 0 ? 24 : 2);
    if (i % 10 == 0) job.Run();
  }
  job.See();
  const WorkSnapshot work = job.work();
  EXPECT_EQ(work.state, WorkState::kProven);
  EXPECT_TRUE(work.are_operations_known);
  EXPECT_EQ(work.operations, 50u);
}

TEST_WITH_JOB(WorkCounterTest, ProvenBesideReplays) {
  job.Capture();
  for (int i = 0; i < 3; ++i) {
    job.block().Finish(4);
    job.Run();  // more than was launched outside of graphs
    job.See();
    job.Run();
    job.See();
  }
  EXPECT_EQ(job.work().state, WorkState::kProven);
  EXPECT_TRUE(job.work().are_operations_known);
  EXPECT_EQ(job.work().operations, 3u);
}

// JAX makes a graph for each collective, and hardly an eager call.
TEST_WITH_JOB(WorkCounterTest, ProvenByReplaysAlone) {
  job.Run();
  job.Capture();
  for (int i = 0; i < 10; ++i) {
    if (i < 8) {
      EXPECT_NE(job.work().state, WorkState::kProven);
    }
    for (int k = 0; k < 20; ++k) job.block().Finish();
    job.See();
  }
  EXPECT_EQ(job.work().state, WorkState::kProven);
  EXPECT_TRUE(job.work().are_operations_known);
  EXPECT_EQ(job.work().operations, 200u);
  job.block().Finish();
  job.See();
  EXPECT_EQ(job.work().operations, 201u);
}

// Rounds of `replays`, each beside an eager call in flight; at most 100.
int RoundsToProve(FakeCuda& gpu, Job& job, int replays) {
  int rounds = 0;
  for (; rounds < 100 && job.work().state != WorkState::kProven; ++rounds) {
    for (int k = 0; k < replays; ++k) job.block().Finish();
    job.comm().Run(FakeCuda::kForever);
    job.See();
    gpu.Release(job.comm().stream());
    job.block().Finish();
  }
  return rounds;
}

// An engine that replays without a pause has eager work in flight whenever somebody looks.
TEST(WorkCounterTest, ProvenBesideEagerCallsThatAreAlwaysInFlight) {
  for (const bool is_warm : {false, true}) {
    RunJob([&](FakeCuda& gpu, Job& job) {
      if (is_warm) job.Run();
      job.Capture();
      const int rounds = RoundsToProve(gpu, job, 50);
      EXPECT_EQ(job.work().state, WorkState::kProven);
      EXPECT_LE(rounds, 12);
      job.See();
      EXPECT_TRUE(job.work().are_operations_known);
      EXPECT_EQ(job.work().operations, static_cast<uint64_t>(50 * rounds));
      EXPECT_EQ(job.comm().Read().launches_completed, job.comm().Read().launches);
    });
  }
}

// How many replays it takes depends on the operations that shared launches, not on how many did.
TEST(WorkCounterTest, EachOperationOfALaunchCountsOnce) {
  for (const size_t calls : {2, 6}) {
    RunJob([calls](FakeCuda& gpu, Job& job) {
      for (size_t i = 0; i < 12 / calls; ++i) {
        job.comm().RunGroup(0, std::vector(calls, StreamCommunicator::Call{"AllReduce", 64}));
        job.block().Finish(2, static_cast<int64_t>(calls));
      }
      job.Capture();
      const int rounds = RoundsToProve(gpu, job, 20);
      EXPECT_LE(rounds, 24);
    });
  }
}

// From 2.29.2 on NCCL reports nothing of a Broadcast but its call.
TEST(WorkCounterTest, ProvenBesideBroadcastsThatAreNotReported) {
  RunJob(
      [](FakeCuda& gpu, Job& job) {
        job.Run();
        job.Capture();
        for (int i = 0; i < 20; ++i) {
          for (int k = 0; k < 50; ++k) job.block().Finish();
          job.comm().RunUnreported(0);
          if (i % 2 == 1) job.block().Finish(1, 2);  // late, and on one channel
          job.See();
        }
        EXPECT_EQ(job.work().state, WorkState::kProven) << WorkRefutalName(job.work().refutal);
        EXPECT_TRUE(job.work().are_operations_known);
        EXPECT_EQ(job.work().operations, 20u * 50u);
        (void)gpu;
      },
      {}, 6);
}

// It hangs before the counter is proven. Whichever word that is, it stands.
TEST_WITH_JOB(WorkCounterTest, ABlockThatStandsIsKnownToStandBeforeItIsProven) {
  job.Run();
  job.Capture();
  job.See();
  for (int k = 0; k < 50; ++k) job.block().Finish();
  job.See();
  ASSERT_EQ(job.work().state, WorkState::kCalibrating);
  const int64_t moved = job.work().moved_realtime_ns;
  EXPECT_NE(moved, 0);
  AdvanceClock(20 * kSecond);
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kCalibrating);
  EXPECT_NEAR(static_cast<double>(job.work().moved_realtime_ns), static_cast<double>(moved), 1e6);
  job.block().Finish();
  job.See();
  EXPECT_GT(job.work().moved_realtime_ns, moved);
}

// What one communicator has proven makes others prove it sooner, and none goes without.
TEST_WITH_GPU(WorkCounterTest, ALaterCommunicatorIsProvenSooner) {
  FakeCuda::Context const context = gpu.CreateContext(0);
  const auto rounds_of = [&](uint64_t id, size_t word) {
    Job job(gpu, true, context, id);
    job.block().UseWord(word);
    job.Capture();
    int rounds = 0;
    for (; rounds < 30 && job.work().state != WorkState::kProven; ++rounds) {
      for (int k = 0; k < 50; ++k) job.block().Finish();
      job.See();
    }
    EXPECT_EQ(job.work().state, WorkState::kProven);
    job.comm().Finalize();
    job.See();
    return rounds;
  };
  const int first = rounds_of(1, kOlderWord);
  EXPECT_EQ(rounds_of(2, kOlderWord), first - 4);
  EXPECT_EQ(rounds_of(3, kNewerWord), first);
}

// The work of the first calls is the sum of another word, too, before or after the first capture.
TEST(WorkCounterTest, AnotherWordMayHaveTheSameSumOnce) {
  for (const int captured_at : {0, 1, 2}) {
    RunJob([&](FakeCuda&, Job& job) {
      job.block().PlaceInTrees(captured_at == 2 ? 4 : 2);
      for (int i = 0; i < 6; ++i) {
        if (i == captured_at) job.Capture();
        if (i > captured_at) job.block().Finish();
        job.Run();
        if (i >= captured_at) {
          EXPECT_EQ(job.work().operations,
                    job.work().are_operations_known ? static_cast<uint64_t>(i - captured_at) : 0);
        }
      }
      EXPECT_EQ(job.work().state, WorkState::kProven) << WorkRefutalName(job.work().refutal);
      EXPECT_TRUE(job.work().are_operations_known);
      EXPECT_EQ(job.work().operations, static_cast<uint64_t>(5 - captured_at)) << captured_at;
    });
  }
}

// The kernel of a call of symmetric memory does not count.
TEST(WorkCounterTest, ACapturedCallThatIsNotReportedRefutes) {
  for (const std::string op : {"AllReduce", "Broadcast"}) {
    RunJob([&](FakeCuda& gpu, Job& job) {
      job.Prove();
      gpu.BeginCapture(job.comm().stream());
      void* group = job.comm().StartGroup(true);
      job.comm().MakeCall(group, op.c_str(), 4096, true);
      job.comm().StopGroup(group);
      gpu.EndCapture(job.comm().stream());
      job.See();
      EXPECT_EQ(job.work().state, WorkState::kProven);
      AdvanceClock(6 * kSecond);
      job.See();
      if (op == "AllReduce") return job.ExpectRefuted(WorkRefutal::kUncounted);
      EXPECT_EQ(job.work().state, WorkState::kProven);
    });
  }
}

// A thread that loses its processor ends its launch, and reports its operation, after the GPU.
TEST(WorkCounterTest, AnOperationMayBeReportedLate) {
  for (const bool is_captured : {false, true}) {
    RunJob([&](FakeCuda&, Job& job) {
      job.Prove();
      if (is_captured) job.Capture();
      job.See();
      void* group = job.comm().StartGroup();
      const StreamCommunicator::Call call = job.comm().MakeCall(group, "AllReduce", 4096);
      void* launch = job.comm().StartLaunch(group);
      job.block().Finish();
      job.See();
      job.See();
      job.comm().StopLaunch(launch);
      job.See();
      job.See();
      EXPECT_EQ(job.work().state, WorkState::kProven) << is_captured;
      job.comm().Report(call);
      job.comm().StopGroup(group);
      job.See();
      EXPECT_EQ(job.work().state, WorkState::kProven) << is_captured;
      for (int i = 0; i < 3; ++i) job.Run();
      EXPECT_EQ(job.work().state, WorkState::kProven) << is_captured;
      EXPECT_EQ(job.work().operations, 0u);
    });
  }
}

// Each replay of a call with network traffic reports it, maybe long after the capture.
TEST_WITH_JOB(WorkCounterTest, ACapturedCallMayBeReportedByItsReplays) {
  job.Prove();
  const auto capture = [&](bool is_launched) {
    gpu.BeginCapture(job.comm().stream());
    void* group = job.comm().StartGroup(true);
    const StreamCommunicator::Call call = job.comm().MakeCall(group, "AllReduce", 4096, true);
    if (is_launched) job.comm().Launch(group, 0);
    job.comm().StopGroup(group);
    gpu.EndCapture(job.comm().stream());
    for (int i = 0; i < 2; ++i) {
      AdvanceClock(6 * kSecond);
      job.See();
    }
    return call;
  };
  const StreamCommunicator::Call call = capture(true);
  EXPECT_EQ(job.work().state, WorkState::kProven);
  for (int i = 0; i < 10; ++i) {
    job.comm().Report(call);
    job.block().Finish();
  }
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);
  EXPECT_EQ(job.work().operations, 10u);
  // One whose kernel does not count is noticed all the same.
  capture(false);
  job.ExpectRefuted(WorkRefutal::kUncounted);
}

TEST_WITH_JOB(WorkCounterTest, OperationsThatShareALaunchAreNotCounted) {
  job.Prove();
  job.Capture(2);
  job.block().Finish();
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);
  EXPECT_FALSE(job.work().are_operations_known);
}

TEST_WITH_JOB(WorkCounterTest, KnowsSinceWhenReplaysStand) {
  job.Prove();
  job.Capture();
  job.block().Finish();
  job.See();
  const int64_t moved = job.work().moved_realtime_ns;
  AdvanceClock(30 * kSecond);
  job.See();
  EXPECT_NEAR(static_cast<double>(job.work().moved_realtime_ns), static_cast<double>(moved), 1e6);
  job.block().Finish();
  job.See();
  EXPECT_GT(job.work().moved_realtime_ns, moved);
  EXPECT_GT(job.work().longest_pause_ns, 30 * kSecond);
  EXPECT_LT(job.work().longest_pause_ns, 40 * kSecond);
}

TEST_WITH_GPU(WorkCounterTest, BadValueIsOn, {"NCCL_PULSE_WORK_COUNTERS", "auto"}) {
  Job job(gpu);
  job.Run();
  EXPECT_EQ(job.work().state, WorkState::kCalibrating);
  bool is_said = false;
  for (const std::string& line : TakeLog()) {
    is_said |=
        line.find("NCCL_PULSE_WORK_COUNTERS=\"auto\" is not on or off; using on") != line.npos;
  }
  EXPECT_TRUE(is_said);
}

TEST_WITH_GPU(WorkCounterTest, DriverWithoutMappingHasNone, {"NCCL_PULSE_TIMING", "off"}) {
  Job job(gpu);
  job.Run();
  EXPECT_EQ(job.work().state, WorkState::kOff);
}

// ---- launches without an event, because the counter tells when they end -------------------------

// In a hurry so many are launched, of which the 58th hangs. Returns how many there were before.
uint64_t HangAmong(Job& job, int launches) {
  job.See();
  SlowClock();
  const uint64_t before = job.comm().Read().launches;
  for (int i = 0; i < launches; ++i) {
    job.comm().Run(i == 57 ? FakeCuda::kForever : 0);
    if (i < 57) job.block().Finish();
  }
  return before;
}

TEST_WITH_JOB(CountedLaunchesTest, InAHurryHaveNoEvents) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  job.See();
  const CommunicatorSnapshot comm = job.comm().Read();
  EXPECT_EQ(comm.launches_completed, comm.launches);
  EXPECT_EQ(comm.oldest_inflight_realtime_ns, 0);
  // The last of them is known by the counter alone, and nothing is left to look at.
  const uint64_t copies = gpu.Calls("cuMemcpyDtoHAsync_v2");
  job.See();
  EXPECT_EQ(gpu.Calls("cuMemcpyDtoHAsync_v2"), copies);
  job.Run();  // after a pause: with an event, which agrees
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

// The report of their operation ends them, or the next launch.
TEST_WITH_JOB(CountedLaunchesTest, InAHurryHaveNoStop,
              {"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND", "one-in-1048576"}) {
  ProveInAHurry(job);
  StreamCommunicator& comm = job.comm();
  for (uint32_t i = 0; i < OperationHandles::kFirst; ++i) {
    comm.Run(0);
    job.block().Finish();
  }
  ASSERT_TRUE(Hurry(gpu, job));
  const uint64_t first = comm.Read().launches;
  uint64_t launches = 0;
  int without_stop = 0;
  // Looks of the background thread bring some of them gates.
  for (; without_stop < 100 && launches < 20000; ++launches) {
    void* group = comm.StartGroup();
    const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096);
    void* launch = comm.StartLaunch(group);
    comm.StopLaunch(launch);
    if (launch == nullptr && ++without_stop == 50) {
      EXPECT_EQ(comm.Read().launches, first + launches);
      comm.StopGroup(group);
      continue;  // without a report
    }
    comm.Report(call);
    job.block().Finish();
    comm.StopGroup(group);
  }
  EXPECT_EQ(without_stop, 100);
  job.See();
  EXPECT_EQ(comm.Read().launches, first + launches);
  EXPECT_EQ(comm.Read().launches_completed, first + launches);
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

TEST_WITH_JOB(CountedLaunchesTest, HaveEventsWhereTheCounterIsNotProven) {
  job.Run();
  gpu.HoldCopies(true);
  SlowClock();
  EXPECT_FALSE(Hurry(gpu, job));
  gpu.HoldCopies(false);
}

TEST_WITH_JOB(CountedLaunchesTest, HaveEventsBesideGraphs) {
  ProveInAHurry(job);
  job.Capture();
  job.Run();
  EXPECT_FALSE(Hurry(gpu, job));
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

TEST_WITH_JOB(CountedLaunchesTest, HaveEventsAfterARefutation) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  job.block().SetHead(0, 3);
  job.Run();
  ASSERT_EQ(job.work().state, WorkState::kRefuted);
  EXPECT_FALSE(Hurry(gpu, job, 0));
  job.See();
  EXPECT_EQ(job.comm().Read().launches_completed, job.comm().Read().launches);
}

// It hangs in the middle of launches without events: the counter tells in which of them.
TEST_WITH_JOB(CountedLaunchesTest, TheOneThatHangsIsKnown) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  const uint64_t before = HangAmong(job, 900);
  job.block().Finish(1);  // one of its channels
  job.See();
  const CommunicatorSnapshot comm = job.comm().Read();
  EXPECT_EQ(comm.launches, before + 900);
  EXPECT_EQ(comm.launches_completed, before + 57);
  EXPECT_NE(comm.oldest_inflight_realtime_ns, 0);
  gpu.Release(job.comm().stream());
  job.See();
}

// A kernel that NCCL does not report may not count, as one of symmetric memory. Its event tells.
TEST(CountedLaunchesTest, UnreportedInAHurryHaveEvents) {
  for (const bool hangs : {false, true}) {
    RunJob([hangs](FakeCuda& gpu, Job& job) {
      ProveInAHurry(job);
      StreamCommunicator& comm = job.comm();
      for (int i = 0; i < 3; ++i) {  // until they are followed
        comm.RunUnreported(0, "AllReduce", 65536);
        job.Run();
      }
      ASSERT_TRUE(Hurry(gpu, job));
      SlowClock();
      const uint64_t before = comm.Read().launches;
      for (int i = 0; i < 20; ++i) {
        comm.RunUnreported(hangs && i == 19 ? FakeCuda::kForever : 0, "AllReduce", 65536);
      }
      for (int i = 0; i < 25; ++i) job.See();
      const CommunicatorSnapshot read = comm.Read();
      EXPECT_EQ(read.launches, before + 20);
      EXPECT_EQ(read.launches_completed < read.launches, hangs);
      EXPECT_EQ(read.oldest_inflight_realtime_ns != 0, hangs);
      EXPECT_EQ(read.work.state, WorkState::kProven);
      if (hangs) gpu.Release(comm.stream());
      job.See();
    });
  }
}

// More of them wait than CUDA queues: what is known of the oldest is too little, and never too much.
TEST_WITH_JOB(CountedLaunchesTest, TooManyToRemember) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  const uint64_t before = HangAmong(job, 3000);
  job.See();
  EXPECT_LE(job.comm().Read().launches_completed, before + 57);
  gpu.Release(job.comm().stream());
  job.block().Finish(2, 3000 - 57);
  job.See();
  EXPECT_EQ(job.comm().Read().launches_completed, before + 3000);
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

// Behind launches without events, by what a counter does not count or may not: none of it is taken to
// be complete, whatever becomes of the counter.
struct Uncounted {
  const char* what;
  int api_version;
  std::function<void(FakeCuda&, Job&)> hang;
};
const std::vector<Uncounted>& AllUncounted() {
  static const std::vector<Uncounted> kAll = {
      {"the first Send", 5,
       [](FakeCuda&, Job& job) { job.comm().Run(FakeCuda::kForever, "Send"); }},
      {"the first Recv, and collectives behind it", 5,
       [](FakeCuda&, Job& job) {
         job.comm().Run(FakeCuda::kForever, "Recv");
         for (int i = 0; i < 50; ++i) job.comm().Run(0);
       }},
      {"a collective right behind a Send that ends", 5,
       [](FakeCuda&, Job& job) {
         job.comm().Run(0, "Send");
         job.comm().Run(FakeCuda::kForever);
       }},
      {"the first group", 5,
       [](FakeCuda&, Job& job) {
         job.comm().RunGroup(FakeCuda::kForever, {{"AllReduce", 4096}, {"AllReduce", 4096}});
       }},
      {"the first group where some may be hidden", 6,
       [](FakeCuda&, Job& job) {
         job.comm().RunGroup(FakeCuda::kForever, {{"AllReduce", 4096}, {"AllReduce", 4096}});
       }},
      {"a collective behind such a group", 6,
       [](FakeCuda&, Job& job) {
         job.comm().RunGroup(0, {{"AllReduce", 4096}, {"AllReduce", 4096}});
         job.block().Finish(2, 2);
         job.comm().Run(FakeCuda::kForever);
       }},
      {"another size without channels", 5,
       [](FakeCuda&, Job& job) {
         job.comm().UseChannels(0);
         job.comm().Run(FakeCuda::kForever, "AllReduce", 1 << 20);
       }},
      {"another operation without channels", 5,
       [](FakeCuda&, Job& job) {
         job.comm().UseChannels(0);
         job.comm().Run(FakeCuda::kForever, "ReduceScatter");
       }},
  };
  return kAll;
}

TEST(CountedLaunchesTest, AHangThatTheCounterDoesNotTellIsInFlight) {
  for (const Uncounted& each : AllUncounted()) {
    RunJob(
        [&](FakeCuda& gpu, Job& job) {
          ProveInAHurry(job);
          ASSERT_TRUE(Hurry(gpu, job)) << each.what;
          each.hang(gpu, job);
          job.SeeFor(4);
          const CommunicatorSnapshot comm = job.comm().Read();
          EXPECT_LT(comm.launches_completed, comm.launches) << each.what;
          EXPECT_NE(comm.oldest_inflight_realtime_ns, 0) << each.what;
          EXPECT_NE(comm.oldest_launch, OldestLaunch::kUntold) << each.what;
          gpu.Release(job.comm().stream());
        },
        {}, each.api_version);
  }
}

// Nobody tells of launches without events once the counter is gone: they are not complete.
TEST(CountedLaunchesTest, WhatStopsTheCounterCompletesNothing) {
  const std::vector<std::pair<const char*, std::function<void(FakeCuda&, Job&)>>> all = {
      {"moved", [](FakeCuda&, Job& job) { job.block().SetHead(0, 3); }},
      {"copy failed", [](FakeCuda& gpu, Job&) { gpu.Fail("cuMemcpyDtoHAsync_v2", 1); }},
      {"not read", [](FakeCuda& gpu, Job&) { gpu.HoldCopies(true); }},
  };
  for (const auto& [what, stop] : all) {
    RunJob([&, what = what, stop = stop](FakeCuda& gpu, Job& job) {
      ProveInAHurry(job);
      ASSERT_TRUE(Hurry(gpu, job)) << what;
      // One hangs that has no event. Looks of the background thread bring some of them gates.
      uint64_t records = 0;
      for (int i = 0; i < 2000; ++i) {
        records = gpu.Calls("cuEventRecord");
        job.comm().Run(FakeCuda::kForever);
        if (gpu.Calls("cuEventRecord") == records) break;
        gpu.Release(job.comm().stream());
        job.block().Finish();
      }
      ASSERT_EQ(gpu.Calls("cuEventRecord"), records) << what;
      const uint64_t before = job.comm().Read().launches - 1;
      stop(gpu, job);
      job.SeeFor(4);
      CommunicatorSnapshot comm = job.comm().Read();
      EXPECT_LE(comm.launches_completed, before) << what;
      EXPECT_EQ(comm.oldest_launch, OldestLaunch::kUntold) << what;
      EXPECT_EQ(comm.oldest_inflight_realtime_ns, 0) << what;
      // The next launch has an event.
      job.comm().Run(0);
      job.See();
      EXPECT_NE(job.comm().Read().oldest_inflight_realtime_ns, 0) << what;
      gpu.Release(job.comm().stream());
      job.block().Finish(2, 2);
      gpu.StopFailing();
      gpu.HoldCopies(false);
      job.See();
      comm = job.comm().Read();
      EXPECT_EQ(comm.launches_completed, comm.launches) << what;
    });
  }
}

// A debugger or SIGSTOP holds the whole process in a hang, for any time.
TEST_WITH_JOB(CountedLaunchesTest, APauseOfTheProcessEndsNoHang) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  const uint64_t before = HangAmong(job, 900);
  job.See();
  for (int i = 0; i < 5; ++i) {
    gpu.HoldCopies(true);  // the other thread looks first
    AdvanceClock((2 + i * 20) * kSecond + 600 * kMs);
    WaitForPoll();
    CommunicatorSnapshot comm = job.comm().Read();
    EXPECT_EQ(comm.launches_completed, before + 57);
    EXPECT_NE(comm.oldest_inflight_realtime_ns, 0);
    gpu.HoldCopies(false);
    job.See();
    comm = job.comm().Read();
    EXPECT_EQ(comm.launches_completed, before + 57);
    EXPECT_NE(comm.oldest_inflight_realtime_ns, 0);
    EXPECT_NE(comm.oldest_launch, OldestLaunch::kUntold);
  }
  gpu.Release(job.comm().stream());
  job.block().Finish(2, 900 - 57);
  job.See();
  EXPECT_EQ(job.comm().Read().launches_completed, before + 900);
}

// An engine warms up, captures its graphs, and makes no eager call any more.
TEST(CountedLaunchesTest, BeforeTheFirstCaptureAreKnown) {
  for (const bool hangs : {false, true}) {
    RunJob([&](FakeCuda& gpu, Job& job) {
      ProveInAHurry(job);
      ASSERT_TRUE(Hurry(gpu, job));
      job.comm().Run(hangs ? FakeCuda::kForever : 0);
      job.Capture();
      if (!hangs) job.block().Finish();
      if (!hangs) job.block().Finish(2, 50);  // replays
      for (int i = 0; i < 2; ++i) job.See();
      const CommunicatorSnapshot comm = job.comm().Read();
      EXPECT_EQ(comm.launches_completed, comm.launches - (hangs ? 1 : 0));
      EXPECT_NE(comm.oldest_launch, OldestLaunch::kUntold);
      EXPECT_EQ(job.work().operations, hangs ? 0u : 50u);
      gpu.Release(job.comm().stream());
    });
  }
}

// A counter that cannot be read says nothing. Nobody then knows whether the last few have ended: they
// are not taken for a hang, nor to be complete.
TEST_WITH_JOB(CountedLaunchesTest, TheCounterIsLost) {
  ProveInAHurry(job);
  gpu.HoldCopies(true);
  ASSERT_TRUE(Hurry(gpu, job));
  job.SeeFor(5);
  EXPECT_EQ(job.work().state, WorkState::kStuck);
  EXPECT_LT(job.comm().Read().launches_completed, job.comm().Read().launches);
  EXPECT_EQ(job.comm().Read().oldest_launch, OldestLaunch::kUntold);
  SlowClock();
  EXPECT_FALSE(Hurry(gpu, job));
  job.See();
  // What events see to hang does.
  job.comm().Run(FakeCuda::kForever);
  job.See();
  EXPECT_EQ(job.comm().Read().launches_completed, job.comm().Read().launches - 1);
  gpu.Release(job.comm().stream());
  gpu.HoldCopies(false);
  job.block().Finish();
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

TEST_WITH_JOB(WorkCounterTest, IsBeingProvenForAWhileAfterTheFirstCapture) {
  job.Run();
  EXPECT_FALSE(job.work().is_being_proven);
  job.Capture();
  job.See();
  EXPECT_TRUE(job.work().is_being_proven);
  AdvanceClock(10 * kSecond);
  job.See();
  EXPECT_FALSE(job.work().is_being_proven);
  EXPECT_EQ(job.work().state, WorkState::kCalibrating);
}

// CUDA_LAUNCH_BLOCKING=1, and the driver does not copy beside a launch that it holds: of the launches in
// front of it nothing is known, but the call stands.
TEST_WITH_JOB(CountedLaunchesTest, TheDriverHoldsALaunchAndTheCounterIsLost) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  gpu.HoldCopies(true);
  void* group = job.comm().StartGroup();
  job.comm().MakeCall(group, "AllReduce", 4096);
  job.comm().StartLaunch(group);
  job.SeeFor(5);
  const CommunicatorSnapshot comm = job.comm().Read();
  EXPECT_EQ(comm.unreported_calls, 1u);
  EXPECT_TRUE(comm.are_unreported_in_group);
  EXPECT_EQ(comm.oldest_inflight_realtime_ns, 0);
  const ProcessSnapshot process = ReadSnapshot();
  EXPECT_EQ(ActivityOf(process, comm, process.last_poll_realtime_ns).reason,
            UnknownReason::kLaunchNotReported);
  gpu.HoldCopies(false);
}

TEST_WITH_JOB(CountedLaunchesTest, AnOperationIsReportedBeforeItsLaunch) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  // Some of these have no event, as in Hurry.
  for (int i = 0; i < 200; ++i) {
    void* group = job.comm().StartGroup();
    const StreamCommunicator::Call call = job.comm().MakeCall(group, "AllReduce", 4096);
    job.comm().Report(call);
    job.comm().Launch(group, 0);
    job.comm().StopGroup(group);
    job.block().Finish();
  }
  job.SeeFor(5);
  // The counter tells whether the last one's operation has ended, but not whether that is the last.
  EXPECT_EQ(job.comm().Read().oldest_inflight_realtime_ns, 0);
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

// A step of three launches after a pause. The first hangs: it has a gate, though it is no launch after the next.
TEST_WITH_JOB(CountedLaunchesTest, TheFirstOfAStepHangs) {
  ProveInAHurry(job);
  for (const bool begun : {true, false}) {
    ASSERT_TRUE(Hurry(gpu, job));
    for (int i = 0; i < 3; ++i) {  // no look brings gates
      job.comm().Run(0);
      job.block().Finish();
    }
    AdvanceClock(kMs);
    if (!begun) gpu.Launch(job.comm().stream(), FakeCuda::kForever);
    job.comm().Run(begun ? FakeCuda::kForever : 0);
    job.comm().Run(0);
    job.comm().Run(0);
    for (int i = 0; i < 3; ++i) job.See();
    EXPECT_EQ(job.comm().Read().oldest_launch,
              begun ? OldestLaunch::kBegun : OldestLaunch::kNotBegun);
    gpu.Release(job.comm().stream());
    job.block().Finish(2, 3);
    for (int i = 0; i < 3; ++i) job.See();
    EXPECT_EQ(job.comm().Read().oldest_inflight_realtime_ns, 0);
  }
}

// Work of the application's stands in front of a launch, and the launch before that has no event.
TEST_WITH_JOB(CountedLaunchesTest, TheGpuDoesNotComeToALaunch) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  job.comm().Run(0);
  job.block().Finish();
  gpu.Launch(job.comm().stream(), FakeCuda::kForever);
  AdvanceClock(kMs);
  job.comm().Run(0);
  AdvanceClock(kMs);
  job.comm().Run(0);  // has a gate, like each launch after a pause
  AdvanceClock(kMs);
  for (int i = 0; i < 3; ++i) job.See();
  const CommunicatorSnapshot comm = job.comm().Read();
  EXPECT_EQ(comm.launches_completed, comm.launches - 2);
  gpu.Release(job.comm().stream());
  job.block().Finish(2, 2);
  job.See();
  EXPECT_EQ(job.comm().Read().launches_completed, comm.launches);
}

}  // namespace
}  // namespace nccl_pulse
