// Calls of which NCCL reports nothing else, where its counter of finished work is proven: they stand
// until all of them are known to have finished.
#include <gtest/gtest.h>

#include <vector>

#include "tests/plugin/work_job.h"

namespace nccl_pulse {
namespace {

constexpr int kWidth = 5;  // channels of a Broadcast here
constexpr uint64_t kLearnt = 64;

// NCCL 2.29.2 and later.
void RunNewer(const std::function<void(FakeCuda&, Job&)>& scenario) { RunJob(scenario, {}, 6); }

uint64_t Standing(Job& job) {
  job.See();
  return job.comm().Read().unreported_calls;
}

// A Broadcast that NCCL launches after its group has ended, or fails to.
void Broadcast(Job& job, int channels = kWidth, uint64_t bytes = 4096) {
  job.comm().RunUnreported(0, "Broadcast", bytes);
  if (channels != 0) job.block().Finish(channels);
}

// Its Broadcasts of 4 KiB are known to take kWidth channels, and none stands.
void RunLearnt(const std::function<void(FakeCuda&, Job&)>& scenario) {
  RunNewer([&](FakeCuda& gpu, Job& job) {
    job.comm().LaunchElsewhere();
    job.Prove();
    Broadcast(job);
    job.Run();
    EXPECT_EQ(Standing(job), 0u);
    scenario(gpu, job);
    EXPECT_EQ(job.work().state, WorkState::kProven);
  });
}

TEST(FinishedCallsTest, FinishWithTheCounter) {
  RunLearnt([](FakeCuda&, Job& job) {
    for (int i = 0; i < 5; ++i) {
      Broadcast(job, 0);
      EXPECT_EQ(Standing(job), 1u);
      Broadcast(job, 0);
      EXPECT_EQ(Standing(job), 2u);
      job.block().Finish(kWidth);
      EXPECT_EQ(Standing(job),
                2u);  // the second one may have failed, and is not told from the first
      job.block().Finish(kWidth);
      EXPECT_EQ(Standing(job), 0u);
    }
  });
}

TEST(FinishedCallsTest, StandUntilTheLastChannelHasFinished) {
  RunLearnt([](FakeCuda&, Job& job) {
    for (const int missing : {kWidth - 1, 2, 0}) {
      Broadcast(job, 0);
      job.block().Finish(missing);
      job.block().Finish(kWidth, 1, missing + 1);
      EXPECT_EQ(Standing(job), 1u) << missing;
      job.block().Finish(missing + 1, 1, missing);
      EXPECT_EQ(Standing(job), 0u) << missing;
    }
  });
}

// Without any launch that NCCL reports in between.
TEST(FinishedCallsTest, ManyTellTheirWidth) {
  RunNewer([](FakeCuda&, Job& job) {
    job.comm().LaunchElsewhere();
    job.Prove();
    for (uint64_t i = 1; i < kLearnt; ++i) {
      Broadcast(job);
      if (i % 9 != 0) continue;
      EXPECT_EQ(Standing(job), i);
    }
    Broadcast(job, 1);  // on one of its channels
    EXPECT_EQ(Standing(job), kLearnt);
    job.block().Finish(kWidth, 1, 1);
    EXPECT_EQ(Standing(job), 0u);
    Broadcast(job, 0);
    EXPECT_EQ(Standing(job), 1u);
    job.block().Finish(kWidth);
    EXPECT_EQ(Standing(job), 0u);
  });
}

// One stands, and so does the next one, until a launch is reported. Then it is known again.
void ExpectBothStandUntilALaunch(Job& job) {
  Broadcast(job);
  EXPECT_EQ(Standing(job), 2u);
  job.Run();
  EXPECT_EQ(Standing(job), 0u);
  Broadcast(job);
  EXPECT_EQ(Standing(job), 0u);
}

TEST(FinishedCallsTest, AnotherSizeMayTakeOtherChannels) {
  RunLearnt([](FakeCuda&, Job& job) {
    Broadcast(job, kWidth, 8192);
    EXPECT_EQ(Standing(job), 1u);
    ExpectBothStandUntilALaunch(job);
  });
}

TEST(FinishedCallsTest, OneThatFailsStandsUntilALaunch) {
  RunLearnt([](FakeCuda&, Job& job) {
    Broadcast(job, 0);
    ExpectBothStandUntilALaunch(job);
  });
}

// PyTorch's all_gather of a list, in its backend nccl2.
TEST(FinishedCallsTest, GroupsOfBroadcastsFinish) {
  for (const bool is_blocking : {false, true}) {
    RunNewer([is_blocking](FakeCuda&, Job& job) {
      StreamCommunicator& comm = job.comm();
      if (!is_blocking) comm.LaunchElsewhere();
      job.Prove();
      const auto run = [&] {
        void* group = comm.StartGroup(false, 2);
        for (int root = 0; root < 2; ++root) comm.MakeCall(group, "Broadcast", 4096, false, root);
        comm.StopGroup(group);
        comm.LaunchUnreported(0);
      };
      run();
      job.block().Finish(kWidth, 2);
      EXPECT_EQ(Standing(job), 2u);
      job.Run();
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(Standing(job), 0u);
        run();
        EXPECT_EQ(Standing(job), 2u);
        job.block().Finish(kWidth, 2);
      }
      EXPECT_EQ(Standing(job), 0u);
    });
  }
}

TEST(FinishedCallsTest, BesideOneThatIsReported) {
  RunLearnt([](FakeCuda& gpu, Job& job) {
    StreamCommunicator& comm = job.comm();
    void* group = comm.StartGroup(false, 2);
    const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096);
    comm.MakeCall(group, "Broadcast", 4096);
    comm.StopGroup(group);
    EXPECT_EQ(Standing(job), 2u);
    job.Launch(group, {call}, 1);
    comm.LaunchUnreported(kMs);
    EXPECT_EQ(Standing(job), 1u);
    job.block().Finish(kWidth);
    gpu.Advance(kMs);
    EXPECT_EQ(Standing(job), 0u);
  });
}

// How many items two collectives of a launch make on channel 0 is not told.
TEST(FinishedCallsTest, BehindALaunchOfSeveralNothingIsKnown) {
  RunLearnt([](FakeCuda& gpu, Job& job) {
    StreamCommunicator& comm = job.comm();
    void* group = comm.StartGroup(false, 2);
    std::vector<StreamCommunicator::Call> calls;
    for (int i = 0; i < 2; ++i) calls.push_back(comm.MakeCall(group, "AllReduce", 4096));
    job.Launch(group, calls, 2, kSecond);
    comm.StopGroup(group);
    EXPECT_EQ(Standing(job), 0u);
    comm.RunUnreported(0);
    job.block().Finish(kWidth);
    EXPECT_EQ(Standing(job), 1u);
    gpu.Advance(kSecond);
    job.Run();
    EXPECT_EQ(Standing(job), 0u);
    Broadcast(job);
    EXPECT_EQ(Standing(job), 0u);
  });
}

// What it has counted is taken for nobody else's until then.
TEST(FinishedCallsTest, BehindOneThatIsReportedLateNothingIsKnown) {
  RunLearnt([](FakeCuda&, Job& job) {
    StreamCommunicator& comm = job.comm();
    void* group = comm.StartGroup();
    const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096);
    job.Launch(group, {}, 1);  // two channels
    comm.StopGroup(group);
    Broadcast(job, kWidth - 2);
    EXPECT_EQ(Standing(job), 1u);
    comm.Report(call);
    job.block().Finish(kWidth, 1, kWidth - 2);
    EXPECT_EQ(Standing(job), 0u);
  });
}

// The kernel of a call of symmetric memory does not count: what is counted may be another call's.
TEST(FinishedCallsTest, KernelsThatDoNotCountAreNotTakenForOthers) {
  RunLearnt([](FakeCuda&, Job& job) {
    job.comm().RunUnreported(0, "AllReduce");
    Broadcast(job);
    EXPECT_EQ(Standing(job), 2u);
    job.block().Finish(kWidth);
    EXPECT_EQ(Standing(job), 2u);
  });
}

// A tuner plugin may choose other channels each time.
TEST(FinishedCallsTest, ASizeOfDifferentWidthsIsNotKnown) {
  RunNewer([](FakeCuda&, Job& job) {
    job.comm().LaunchElsewhere();
    job.Prove();
    Broadcast(job, 3);
    Broadcast(job, 4);
    job.Run();
    Broadcast(job, 4);
    EXPECT_EQ(Standing(job), 1u);
  });
}

// A thread that loses its processor reports an operation after the GPU has ended it.
TEST(FinishedCallsTest, AnOperationBehindOneThatStandsMayBeReportedLate) {
  RunNewer([](FakeCuda&, Job& job) {
    StreamCommunicator& comm = job.comm();
    job.Prove();
    for (int i = 0; i < 5; ++i) {
      Broadcast(job);
      void* group = comm.StartGroup();
      const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096);
      void* launch = comm.StartLaunch(group);
      job.block().Finish();
      job.See();
      comm.StopLaunch(launch);
      job.See();
      comm.Report(call);
      comm.StopGroup(group);
      job.See();
      EXPECT_EQ(job.work().state, WorkState::kProven) << i;
    }
    EXPECT_EQ(comm.Read().launches_completed, comm.Read().launches);
  });
}

TEST(FinishedCallsTest, BesideGraphsNothingIsKnown) {
  RunLearnt([](FakeCuda&, Job& job) {
    job.Capture();
    Broadcast(job);
    EXPECT_EQ(Standing(job), 1u);
  });
}

TEST(FinishedCallsTest, ARefutedCounterSaysNothing) {
  RunNewer([](FakeCuda&, Job& job) {
    job.comm().LaunchElsewhere();
    job.Prove();
    Broadcast(job);
    job.Run();
    job.block().SetHead(0, 3);
    Broadcast(job);
    EXPECT_EQ(Standing(job), 1u);
    EXPECT_EQ(job.work().state, WorkState::kRefuted);
  });
}

// Its numbers begin anew with each communicator.
TEST_WITH_GPU(FinishedCallsTest, ThoseOfTheNextCommunicatorStand) {
  FakeCuda::Context const context = gpu.CreateContext(0);
  for (uint64_t id = 1; id <= 3; ++id) {
    Job job(gpu, true, context, id, 6);
    job.comm().LaunchElsewhere();
    job.Prove();
    Broadcast(job);
    EXPECT_EQ(Standing(job), 1u) << id;
    job.Run();
    Broadcast(job);
    EXPECT_EQ(Standing(job), 0u) << id;
    job.comm().Finalize();
    job.See();
    AdvanceClockAndPoll(700 * kSecond);
  }
}

}  // namespace
}  // namespace nccl_pulse
