// What could make a proven counter of finished work say something that is not so.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <vector>

#include "plugin/abi/profiler_v7.h"
#include "tests/plugin/work_job.h"

namespace {

// So many threads are still to be had: the limit of a container.
std::atomic<int> g_threads_left{INT32_MAX};

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  static const auto kNext =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return g_threads_left-- > 0 ? kNext(thread, attributes, run, argument) : EAGAIN;
}

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
        job.SeeFor(5);
        EXPECT_EQ(comm.Read().oldest_inflight_realtime_ns, 0);
        EXPECT_EQ(comm.Read().oldest_launch, OldestLaunch::kUntold);
        job.ExpectRefuted(WorkRefutal::kUncounted);
        EXPECT_EQ(comm.Read().launches_completed, comm.Read().launches);
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
// The search starts at NCCL's own member, not at a place that the chained profilers use in between.
TEST_WITH_JOB(WorkAttackTest, IsProvenBesideASecondProfiler,
              {"NCCL_PULSE_NEXT_PLUGIN", "tests/plugin/libnext_v5.so"}) {
  job.Prove();
}

// Some filters of system calls end the process for process_vm_readv.
TEST_WITH_JOB(WorkAttackTest, IsFoundWithoutReadingAsADebuggerDoes) {
  if (!RefuseSystemCalls({{SYS_process_vm_readv, EPERM}, {SYS_ptrace, EPERM}})) {
    SkipScenario("seccomp filters are not permitted here");
  }
  job.Prove();
}

// Nobody would give back what a search retains.
TEST_WITH_GPU(WorkAttackTest, NothingIsRetainedWhileNobodyReads) {
  gpu.Block("cuMemMap");
  constexpr uint64_t kJobs = 40;
  std::vector<std::unique_ptr<Job>> jobs;
  FakeCuda::Context const context = gpu.CreateContext(0);
  for (uint64_t i = 1; i <= kJobs; ++i) {
    jobs.push_back(std::make_unique<Job>(gpu, true, context, i));
    jobs.back()->comm().Run(kMs);
  }
  ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
  const uint64_t retained = gpu.Calls("cuMemRetainAllocationHandle");
  EXPECT_LE(retained, 2u * 9);  // two allocations each, of the bound and of what was taken
  AdvanceClock(5 * kSecond);
  for (uint64_t i = 0; i < kJobs; ++i) jobs[i]->comm().Run(kMs, "AllGather");
  EXPECT_EQ(gpu.Calls("cuMemRetainAllocationHandle"), retained);
  gpu.Unblock();
  for (int i = 0; i < 20; ++i) {
    jobs.back()->See();
    for (const std::unique_ptr<Job>& job : jobs)
      job->comm().Run(kMs, i % 2 != 0 ? "AllGather" : "Reduce");
  }
  for (const std::unique_ptr<Job>& job : jobs) EXPECT_NE(job->work().state, WorkState::kUnknown);
}

TEST_WITH_GPU(WorkAttackTest, NothingIsRetainedWithoutAReader) {
  g_threads_left = 1;  // "pulse-poll"
  Job job(gpu);
  g_threads_left = INT32_MAX;
  for (int i = 0; i < 3; ++i) job.comm().Run(kMs);
  WaitForPoll();
  EXPECT_EQ(gpu.Calls("cuMemRetainAllocationHandle"), 0u);
  EXPECT_EQ(job.comm().Read().launches, 3u);
}

// Each of them would be read ten times a second.
TEST_WITH_GPU(WorkAttackTest, ManyCommunicatorsShareABudgetOfLooks) {
  constexpr uint64_t kJobs = 100, kRounds = 20;
  FakeCuda::Context const context = gpu.CreateContext(0);
  std::vector<std::unique_ptr<Job>> jobs;
  for (uint64_t i = 1; i <= kJobs; ++i) {
    jobs.push_back(std::make_unique<Job>(gpu, true, context, i));
    jobs.back()->Capture();
    if (i % 8 == 0) jobs.back()->See();
  }
  jobs.back()->See();
  SlowClock();
  const uint64_t copies = gpu.Calls("cuMemcpyDtoHAsync_v2");
  for (uint64_t i = 0; i < kRounds; ++i) {
    AdvanceClock(100 * kMs);
    WaitForReading();
  }
  EXPECT_GT(gpu.Calls("cuMemcpyDtoHAsync_v2"), copies);
  EXPECT_LE(gpu.Calls("cuMemcpyDtoHAsync_v2") - copies, kRounds * 40 + 40);
  for (const std::unique_ptr<Job>& job : jobs) {
    EXPECT_EQ(job->work().state, WorkState::kCalibrating);
  }
}

// A copy that waits for the GPU keeps the others of its context from theirs.
TEST_WITH_GPU(WorkAttackTest, SlowCopiesReachEachCommunicator) {
  constexpr uint64_t kJobs = 12, kReplays = 7;
  FakeCuda::Context const context = gpu.CreateContext(0);
  std::vector<std::unique_ptr<Job>> jobs;
  for (uint64_t i = 1; i <= kJobs; ++i) {
    jobs.push_back(std::make_unique<Job>(gpu, true, context, i));
    jobs.back()->Prove();
    jobs.back()->Capture();
  }
  jobs.back()->See();
  gpu.SlowCopies(50);  // one is done in the round behind its own, WorkReader::Begin asks so often
  for (const std::unique_ptr<Job>& job : jobs) job->block().Finish(2, kReplays);
  for (uint64_t i = 0; i < 4 * kJobs; ++i) {
    AdvanceClock(20 * kMs);
    WaitForReading();
  }
  for (const std::unique_ptr<Job>& job : jobs) EXPECT_EQ(job->work().operations, kReplays);
}

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
