// Ranks that have ended while others wait: what they had called decides whether they are why.
#include <cstdint>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

// As an abort does: the kernel leaves, and the communicator is finalized.
void Abort(SimulatedJob* job, uint64_t comm, int rank) {
  job->Complete(comm, rank);
  job->Of(comm, rank).finalized = true;
}

TEST(EndedRank, AWatchdogsVictimIsNotWhyTheOthersWait) {
  SimulatedJob job = LaunchingJob({0, 1, 2});
  job.Advance(3 * kHangAfter);
  SimulatedJob aborted = job;
  End(&job, 0);
  const Hang killed = ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(killed.waiting, ElementsAre(1, 2));
  EXPECT_THAT(killed.text, HasSubstr("Rank 3 (pid 103, GPU 3) has not called AllReduce"));
  EXPECT_THAT(killed.text, HasSubstr("Rank 0 (pid 100, GPU 0) ended while it waited."));
  Abort(&aborted, kComm, 0);
  const Hang left = ExpectHang(&aborted, HangVerdict::kRankNotCalled, {3});
  EXPECT_NE(left.situation, Situation::kFinalized);
  EXPECT_THAT(left.text, HasSubstr("Rank 0 (pid 100, GPU 0) finalized the communicator while it "
                                   "waited."));
}

// It has called what the others are in, and nobody owes a call.
TEST(EndedRank, WhoEndsInACallThatAllHaveMadeIsWhyTheOthersWait) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  job.Advance(kSecond);
  SimulatedJob aborted = job;
  End(&job, 2);
  ExpectHang(&job, HangVerdict::kProcessGone, {2});
  Abort(&aborted, kComm, 2);
  EXPECT_EQ(ExpectHang(&aborted, HangVerdict::kRankNotCalled, {2}).situation,
            Situation::kFinalized);
}

// A launcher ends the ranks of other nodes 300 ms after the first has died.
TEST(EndedRank, WhoEndsFirstIsNamedIfTheClocksOfTheNodesTell) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  job.Advance(kSecond);
  job.process(2).hostname = "node-b";
  End(&job, 2);
  job.Advance(300 * kMs);
  End(&job, 1);
  SimulatedJob known = job;
  ExpectHang(&job, HangVerdict::kProcessGone, {1, 2});
  for (int i = 0; i < 4; ++i) known.process(i).clock_error_ns = 100 * kMs;
  EXPECT_THAT(ExpectHang(&known, HangVerdict::kProcessGone, {2}).text,
              HasSubstr("Rank 1 (pid 101, GPU 1) followed."));
}

// It dumped core for 40 s, so the others began to wait after it had stopped.
TEST(EndedRank, WhoShowedNoSignOfLifeBeforeItsEndIsWhyTheOthersWait) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  job.Advance(kSecond);
  AdvanceWithout(&job, 2, 40 * kSecond);
  End(&job, 2);
  ExpectHangNow(job, HangVerdict::kProcessGone, {2});
}

// Rank 0 waited for three seconds when it noticed an error and exited. Rank 3 is not seen.
TEST(EndedRank, WhoEndsAfterAWaitIsNamedAfterARankThatIsNotSeen) {
  SimulatedJob job(3);
  job.AddCommunicator(kComm, {0, 1, 2}, 4, 1);
  job.Collective(kComm, "AllReduce", {0, 0, 0}, kMs);
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Advance(3 * kSecond);
  End(&job, 0);
  EXPECT_THAT(ExpectHang(&job, HangVerdict::kRankNotSeen, {3}).text,
              HasSubstr("Rank 0 (pid 100, GPU 0) ended while it waited."));
}

TEST(EndedRank, WhoEndsAfterAHangIsNotWhyTheOthersWait) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kBegun, kBegun, kBegun, kNotBegun});
  job.Advance(kHangAfter);
  SimulatedJob aborted = job;
  End(&job, 2);
  ExpectHang(&job, HangVerdict::kRankNotBegun, {3});
  Abort(&aborted, kComm, 2);
  ExpectHang(&aborted, HangVerdict::kRankNotBegun, {3});
  SetBegun(&aborted, kComm, {kBegun, kBegun, kBegun, kBegun});
  EXPECT_THAT(ExpectHang(&aborted, HangVerdict::kNoProgress, {}).text,
              HasSubstr("while it waited"));
}

// Its death is younger than the wait: two have not called, and one of them ended since.
TEST(EndedRank, WhoEndsWithoutTheCallHadNotCalled) {
  SimulatedJob job = LaunchingJob({0, 1});
  job.Advance(kHangAfter);
  End(&job, 2);
  End(&job, 0);
  EXPECT_THAT(ExpectHang(&job, HangVerdict::kRankNotCalled, {2, 3}).text,
              HasSubstr("rank 3 (pid 103, GPU 3) have not called AllReduce"));
}

// Rank 2 had called later than rank 1, which waits since.
TEST(EndedRank, WhoAbortsBeforeTheLastHasComeIsWhyTheOthersWait) {
  SimulatedJob job = LaunchingJob({0, 2, 3});
  job.Advance(8 * kSecond);
  Abort(&job, kComm, 2);
  job.Advance(kSecond);
  job.Launch(kComm, 1, "AllReduce");
  EXPECT_EQ(ExpectHang(&job, HangVerdict::kRankNotCalled, {2}).situation, Situation::kFinalized);
}

// Rank 0 had posted the AllGather behind an AllReduce with rank 2, which paused. Rank 1 ended while
// rank 0 was still in the AllReduce, so it is why rank 0 waits now.
TEST(EndedRank, WhoEndsBeforeTheOthersGpuCompletedEarlierWorkIsWhyItWaits) {
  SimulatedJob job(3);
  job.AddCommunicator(kComm, {0, 1});
  job.AddCommunicator(kOther, {0, 2});
  for (const uint64_t comm : {kComm, kOther}) job.Collective(comm, "AllReduce", {0, 0}, kMs);
  job.Launch(kOther, 0, "AllReduce");
  job.Launch(kComm, 0, "AllGather");
  job.Launch(kComm, 1, "AllGather");
  job.Advance(10 * kSecond);
  End(&job, 1);
  SimulatedJob stuck = job;
  job.Advance(10 * kSecond);
  job.Launch(kOther, 1, "AllReduce");
  for (const int rank : {0, 1}) job.Complete(kOther, rank);
  ExpectHang(&job, HangVerdict::kProcessGone, {1});
  stuck.Advance(10 * kSecond);
  EXPECT_NE(HangNow(stuck).verdict, HangVerdict::kProcessGone);
}

// The network blocks the AllGather. A watchdog ends rank 1, and rank 0 still works with rank 2 on
// another stream.
TEST(EndedRank, WhoEndsWhileWorkOnAnotherStreamMovesIsNotWhyTheOthersWait) {
  SimulatedJob job(3);
  job.AddCommunicator(kComm, {0, 1});
  job.AddCommunicator(kOther, {0, 2});
  for (const uint64_t comm : {kComm, kOther}) job.Collective(comm, "AllReduce", {0, 0}, kMs);
  LaunchOn(&job, {0, 1}, "AllGather");
  job.Advance(10 * kSecond);
  End(&job, 1);
  job.Advance(10 * kSecond);
  for (int i = 0; i < 3; ++i) job.Collective(kOther, "AllReduce", {0, 0}, kMs);
  ExpectHangNow(job, HangVerdict::kNoProgress, {});
}

TEST(EndedRank, AWaitThatSomebodyDidNotSurviveIsNotUsual) {
  SimulatedJob job = RunningJob();
  for (int rank = 0; rank < 4; ++rank) {
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", uint64_t{600} * kSecond)};
  }
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Advance(kHangAfter);
  EXPECT_TRUE(HangOf(job)->is_usual);
  End(&job, 0);
  EXPECT_FALSE(HangOf(job)->is_usual);
}

// Tensor parallel {0, 1} and {2, 3}, data parallel {0, 2} and {1, 3}. Rank 0 waits for rank 1, and
// rank 2 for rank 0, whose watchdog ends it.
class EndedElsewhere : public testing::Test {
 protected:
  static constexpr uint64_t kTensor = 1, kData = 3;

  EndedElsewhere() : job_(4) {
    job_.AddCommunicator(kTensor, {0, 1});
    job_.AddCommunicator(2, {2, 3});
    job_.AddCommunicator(kData, {0, 2});
    job_.AddCommunicator(4, {1, 3});
    for (uint64_t comm = 1; comm <= 4; ++comm) job_.Collective(comm, "AllReduce", {0, 0}, kMs);
    job_.Launch(kTensor, 0, "AllReduce");
    job_.Launch(kData, 1, "AllReduce");
    job_.Advance(2 * kHangAfter);
  }

  void ExpectThatItBeganWithRank1() {
    ExpectHangNow(job_, HangVerdict::kRankNotCalled, {1}, kTensor);
    const Hang data = ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {0}, kData);
    EXPECT_THAT(data.text, HasSubstr("It ended while it waited in communicator 0000000000000001"));
    EXPECT_THAT(data.text, Not(HasSubstr("meanwhile")));
  }

  SimulatedJob job_;
};

TEST_F(EndedElsewhere, Killed) {
  End(&job_, 0);
  ExpectThatItBeganWithRank1();
}

TEST_F(EndedElsewhere, Aborted) {
  Abort(&job_, kTensor, 0);
  job_.Of(kData, 0).finalized = true;
  ExpectThatItBeganWithRank1();
}

TEST_F(EndedElsewhere, InExit) {
  job_.process(0).poller = PollerState::kEnded;
  AdvanceWithout(&job_, 0);
  ExpectHangNow(job_, HangVerdict::kRankNotCalled, {1}, kTensor);
  ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {0}, kData);
}

TEST_F(EndedElsewhere, NobodyWaitsForIt) {
  job_.Complete(kData, 1);
  End(&job_, 0);
  EXPECT_EQ(HangOf(job_, kTensor), std::nullopt);
}

TEST_F(EndedElsewhere, BothHaveEnded) {
  End(&job_, 0);
  End(&job_, 1);
  ExpectHangNow(job_, HangVerdict::kProcessGone, {1}, kTensor);
  ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {0}, kData);
}

// Leaders {0, 1} and the second one's node {1, 2, 3}. Rank 0 waits for rank 1, which waits over TCP.
class OutsideNccl : public testing::Test {
 protected:
  OutsideNccl() : job_(4) {
    job_.AddCommunicator(kComm, {0, 1});
    job_.AddCommunicator(kOther, {1, 2, 3});
    Step();
  }

  void Step() {
    job_.Collective(kOther, "AllReduce", {0, 0, 0}, kMs);
    job_.Collective(kComm, "AllReduce", {0, 0}, kMs);
  }
  void Wait(int64_t ns = kHangAfter) {
    job_.Launch(kComm, 0, "AllReduce");
    job_.Advance(ns);
  }
  void ExpectTheLeader() {
    ExpectHangNow(job_, HangVerdict::kRankNotCalled, {1});
    EXPECT_EQ(HangOf(job_, kOther), std::nullopt);
  }

  SimulatedJob job_;
};

TEST_F(OutsideNccl, WhoEndsIsNamedBeforeWhoMayWaitForIt) {
  End(&job_, 3);
  job_.Advance(kSecond);
  Wait();
  const Hang hang = ExpectHangNow(job_, HangVerdict::kProcessGone, {2}, kOther);
  EXPECT_THAT(hang.text, HasSubstr("Ranks that others wait for may wait for it outside NCCL."));
  EXPECT_EQ(hang.since_realtime_ns, job_.now() - kHangAfter - kSecond);
  ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {1});
}

TEST_F(OutsideNccl, AlsoWhereTheLauncherEndsWhoWaits) {
  Wait(100 * kMs);
  End(&job_, 3);
  job_.Advance(400 * kMs);
  End(&job_, 1);
  End(&job_, 2);
  job_.Advance(kHangAfter);
  const Hang hang = ExpectHangNow(job_, HangVerdict::kProcessGone, {2}, kOther);
  EXPECT_EQ(hang.finding, 0);
}

TEST_F(OutsideNccl, WhoseGpuFailsIsNamed) {
  job_.Of(kOther, 2).has_heartbeat = false;
  job_.Of(kOther, 2).driver_error = 700;
  job_.Of(kOther, 2).driver_error_realtime_ns = job_.now();
  Wait();
  ExpectHangNow(job_, HangVerdict::kDriverError, {2}, kOther);
}

TEST_F(OutsideNccl, WhoIsStoppedIsNamed) {
  job_.Launch(kComm, 0, "AllReduce");
  AdvanceWithout(&job_, 3);
  ExpectHangNow(job_, HangVerdict::kProcessStopped, {2}, kOther);
}

TEST_F(OutsideNccl, WhoEndsLaterIsNotWhy) {
  Wait();
  End(&job_, 3);
  job_.Advance(kHangAfter);
  ExpectTheLeader();
}

TEST_F(OutsideNccl, WhoEndedLongBeforeTheLastCallIsNotWhy) {
  End(&job_, 3);
  job_.Advance(kHangAfter);
  job_.Collective(kComm, "AllReduce", {0, 0}, kMs);
  Wait();
  ExpectTheLeader();
}

TEST_F(OutsideNccl, WhoLeftTheCommunicatorIsNotWhy) {
  job_.Of(kOther, 2).finalized = true;
  End(&job_, 3);
  Wait();
  ExpectTheLeader();
}

// The others have aborted the communicator: they go on without it.
TEST_F(OutsideNccl, WhoIsLeftBehindIsNotWhy) {
  End(&job_, 3);
  Abort(&job_, kOther, 0);
  Abort(&job_, kOther, 1);
  Wait();
  ExpectTheLeader();
}

TEST_F(OutsideNccl, WhoHasCalledAllThatOthersWaitInIsNotWhy) {
  for (const int rank : {1, 2}) job_.Launch(kOther, rank, "Reduce");
  job_.Complete(kOther, 2);
  End(&job_, 3);
  Wait();
  ExpectHangNow(job_, HangVerdict::kRankNotCalled, {1});
  ExpectHangNow(job_, HangVerdict::kRankNotCalled, {0}, kOther);
}

}  // namespace
}  // namespace nccl_pulse
