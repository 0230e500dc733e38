// What could make a proven counter of finished work say something that is not so.
#include <gtest/gtest.h>

#include <vector>

#include "plugin/abi/profiler_v7.h"
#include "tests/plugin/work_job.h"

namespace nccl_pulse {
namespace {

// NCCL 2.31.2 and later report an operation of symmetric memory, whose kernel does not count.
void ReportSymmetric(FakeCuda& gpu, StreamCommunicator& comm, void* call) {
  abi::v7::Descriptor event{};
  event.type = abi::kEventColl;
  event.parentObj = call;
  event.coll.func = "AllReduce";
  event.coll.count = 4096;
  event.coll.datatype = "ncclInt8";
  event.coll.algo = "AGxLL_R";
  event.coll.proto = "";
  event.coll.nChannels = 2;
  event.coll.isSymColl = true;
  void* handle = nullptr;
  gpu.EnterCallback();
  EXPECT_EQ(ProfilerOf<abi::v7::Profiler>(7).startEvent(comm.context(), &handle, &event),
            abi::kSuccess);
  if (handle != nullptr) Stop(handle);
  gpu.LeaveCallback();
}

// Behind launches in a hurry, and with nothing behind it: no event says that it has ended.
TEST(WorkAttackTest, AKernelThatDoesNotCountIsNotInFlightForEver) {
  RunJob(
      [](FakeCuda& gpu, Job& job) {
        ProveInAHurry(job);
        ASSERT_TRUE(Hurry(gpu, job));
        StreamCommunicator& comm = job.comm();
        const uint64_t records = gpu.Calls("cuEventRecord");
        void* group = comm.StartGroup();
        const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096);
        void* launch = comm.StartLaunch(group);
        gpu.Launch(comm.stream(), 0);
        comm.StopLaunch(launch);
        ReportSymmetric(gpu, comm, call.handle);
        comm.StopGroup(group);
        EXPECT_EQ(gpu.Calls("cuEventRecord"), records);
        for (int i = 0; i < 5; ++i) {
          AdvanceClock(kSecond);
          job.See();
        }
        EXPECT_EQ(comm.Read().launches_completed, comm.Read().launches);
        job.ExpectRefuted(WorkRefutal::kUncounted);
      },
      {}, 7);
}

TEST(WorkAttackTest, ACapturedKernelThatDoesNotCountIsNotQuiet) {
  RunJob(
      [](FakeCuda& gpu, Job& job) {
        job.Prove();
        StreamCommunicator& comm = job.comm();
        gpu.BeginCapture(comm.stream());
        void* group = comm.StartGroup(true);
        const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096, true);
        comm.Launch(group, 0);
        ReportSymmetric(gpu, comm, call.handle);
        comm.StopGroup(group);
        gpu.EndCapture(comm.stream());
        job.See();
        EXPECT_EQ(job.work().state, WorkState::kRefuted);
      },
      {}, 7);
}

// Their launches follow each other on one GPU; one of the two hangs.
TEST_WITH_GPU(WorkAttackTest, CommunicatorsOfOneContextAreToldApart) {
  FakeCuda::Context const context = gpu.CreateContext(0);
  Job hangs(gpu, true, context, 1);
  Job goes_on(gpu, true, context, 2);
  // NCCL's communicator has the other one's block as well, further away than its own.
  hangs.nccl().other = goes_on.block().memory();
  goes_on.nccl().other = hangs.block().memory();
  for (int i = 0; i < 3; ++i) {
    hangs.Run();
    goes_on.Run();
  }
  hangs.comm().Run(FakeCuda::kForever);
  SlowClock();
  for (int i = 0; i < 500; ++i) {
    goes_on.comm().Run(0);
    goes_on.block().Finish();
  }
  hangs.See();
  for (Job* job : {&hangs, &goes_on}) {
    const CommunicatorSnapshot read = job->comm().Read();
    EXPECT_EQ(read.work.state, WorkState::kProven);
    EXPECT_EQ(read.launches - read.launches_completed, job == &hangs ? 1u : 0u);
  }
  gpu.Release(hangs.comm().stream());
  hangs.block().Finish();
  hangs.See();
  EXPECT_EQ(hangs.comm().Read().launches_completed, hangs.comm().Read().launches);
}

// Twins launch alike. Whose block it is, no count tells then: nothing is believed of either.
TEST(WorkAttackTest, ABlockOfTwoCommunicatorsIsOfNeither) {
  for (const bool is_proven : {false, true}) {
    RunWithGpu([is_proven](FakeCuda& gpu) {
      FakeCuda::Context const context = gpu.CreateContext(0);
      Job one(gpu, true, context, 1);
      Job other(gpu, true, context, 2);
      other.nccl().block = one.block().memory();
      if (is_proven) one.Prove();
      for (int i = 0; i < 3; ++i) {
        one.Run();
        other.Run();
      }
      one.ExpectRefuted(WorkRefutal::kNotFound);
      other.ExpectRefuted(WorkRefutal::kNotFound);
    });
  }
}

// What was captured is never instantiated: its communicator launches eagerly, and hangs there.
TEST_WITH_JOB(WorkAttackTest, AGraphThatIsNeverMadeHidesNoHang) {
  job.Prove();
  job.Capture();
  for (int i = 0; i < 5; ++i) job.Run();
  job.comm().Run(FakeCuda::kForever);
  AdvanceClock(30 * kSecond);
  job.See();
  const CommunicatorSnapshot read = job.comm().Read();
  EXPECT_EQ(read.launches - read.launches_completed, 1u);
  EXPECT_EQ(read.work.operations, 0u);
  gpu.Release(job.comm().stream());
  job.block().Finish();
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);
}

// A kernel that is aborted counts the batch that it was in (src/device/common.h), and leaves out the rest.
TEST_WITH_JOB(WorkAttackTest, AnAbortedKernelThatCountsLessRefutes) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  job.comm().RunGroup(0, {{"AllReduce", 64}, {"AllReduce", 64}, {"AllReduce", 64}});
  job.block().Finish(2, 1);  // of three
  AdvanceClock(kMs);
  job.Run();  // with an event
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kRefuted);
  EXPECT_EQ(job.comm().Read().launches_completed, job.comm().Read().launches);
}

// Its graph ends while a replay runs: the kernels count all the same, and CUDA lets them end.
TEST_WITH_JOB(WorkAttackTest, AGraphThatIsDestroyedWhileItRuns) {
  job.Prove();
  job.Capture();
  for (int i = 0; i < 10; ++i) job.block().Finish();
  job.See();
  gpu.DestroyGraph(gpu.CapturedGraph(job.comm().stream()));
  for (int i = 0; i < 5; ++i) job.block().Finish();
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kProven);
  EXPECT_EQ(job.work().operations, 15u);
}

// A communicator that is aborted has nothing in flight, and its memory is given back though a copy hangs.
TEST_WITH_JOB(WorkAttackTest, AnAbortInFlightLeavesNothing) {
  ProveInAHurry(job);
  ASSERT_TRUE(Hurry(gpu, job));
  job.comm().Run(FakeCuda::kForever);
  gpu.HoldCopies(true);
  job.See();
  job.block().Free();
  job.comm().Finalize();
  job.See();
  gpu.HoldCopies(false);
  gpu.Release(job.comm().stream());
  job.See();
  EXPECT_EQ(job.work().state, WorkState::kGone);
  EXPECT_EQ(gpu.MemoryHeld(), 0u);
}

}  // namespace
}  // namespace nccl_pulse
