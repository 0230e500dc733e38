#include "exporter/diagnosis/waits/hang.h"

#include <set>

#include "exporter/diagnosis/words/rank_words.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using HangTest = RunningJobTest;

TEST_F(HangTest, NoneWhileNothingIsInFlight) { ExpectNoHang(&job, 100 * kSecond); }

TEST_F(HangTest, NamesTheRankThatHasNotCalled) {
  job = LaunchingJob({0, 1, 2});
  const int64_t launched = job.now();
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 2));
  EXPECT_EQ(hang.op, "AllReduce");
  EXPECT_EQ(hang.since_realtime_ns, launched);
  EXPECT_EQ(hang.text,
            "Rank 3 (pid 103, GPU 3) has not called AllReduce #21 (up to 1MiB), and has nothing in "
            "flight here. Ranks 0, 1 and 2 wait in AllReduce.");
}

TEST_F(HangTest, SeveralThatHaveNotCalledAndSeveralCalls) {
  job = LaunchingJob({0, 2});
  LaunchOn(&job, {0, 2}, "AllGather");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {1, 3});
  EXPECT_THAT(hang.text, HasSubstr("AllGather #21 (up to 1MiB) and AllReduce #21 (up to 1MiB), "
                                   "and have nothing in flight here."));
}

TEST_F(HangTest, SaysWhichOfTheSameCallsIsMissing) {
  job = LaunchingJob({0, 1, 2, 3});
  job.Complete(kComm, 3);
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(hang.text, HasSubstr("has not called AllReduce #22 and #23 (up to 1MiB), and has "
                                   "nothing in flight here."));
}

TEST_F(HangTest, NoneWhileABacklogProgresses) {
  job = LaunchingJob({0, 1, 2, 3});
  job.Advance(60 * kSecond);
  // The oldest that is known to be in flight is old, but one of before it has just completed.
  for (int rank = 0; rank < 4; ++rank) {
    job.Of(kComm, rank).last_completion_realtime_ns = job.now() - kSecond;
  }
  EXPECT_EQ(HangOf(job), std::nullopt);
}

TEST_F(HangTest, DifferentOperationsAreNamedOnBothSides) {
  job = LaunchingJob({0, 1, 3});
  LaunchOn(&job, {2}, "Broadcast");
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {2});
  EXPECT_EQ(hang.op, "AllReduce,Broadcast");
  EXPECT_THAT(hang.text, HasSubstr("rank 0 (pid 100, GPU 0), rank 1 (pid 101, GPU 1) and rank 3 "
                                   "(pid 103, GPU 3) have called AllReduce; rank 2 (pid 102, GPU "
                                   "2) has called Broadcast"));
}

TEST_F(HangTest, DifferentSizes) {
  job = LaunchingJob({0, 1, 2}, "AllReduce", 4);
  LaunchOn(&job, {3}, "AllReduce", 6);
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {3});
  EXPECT_THAT(hang.text, HasSubstr("AllReduce (up to 16MiB)"));
  EXPECT_THAT(hang.text, HasSubstr("AllReduce (up to 1MiB)"));
}

TEST_F(HangTest, AllHaveLaunched) {
  job = LaunchingJob({0, 1, 2, 3}, "AllGather");
  const Hang hang = ExpectHang(&job, HangVerdict::kNoProgress, {});
  EXPECT_EQ(hang.op, "AllGather");
  EXPECT_THAT(hang.text, Not(HasSubstr("another node")));
}

TEST_F(HangTest, AllHaveLaunchedButOneHostIsAhead) {
  job = LaunchingJob({0, 1, 2, 3}, "AllGather");
  LaunchOn(&job, {0, 1}, "AllReduce");
  ExpectHang(&job, HangVerdict::kNoProgress, {});
}

TEST_F(HangTest, AnotherNodeIsNotBlamedAndNotExcluded) {
  job = RunningJob(8, 2);
  LaunchOn(&job, {0, 1, 2, 3}, "AllGather");
  const Hang hang = ExpectHang(&job, HangVerdict::kNoProgress, {});
  EXPECT_THAT(hang.text, HasSubstr("All ranks that are seen here have called"));
  EXPECT_THAT(hang.text, HasSubstr("the cause is a rank that is not seen here, a GPU"));
  EXPECT_THAT(hang.text, HasSubstr(" Compare with the other nodes."));
}

TEST_F(HangTest, RankOfThisNodeThatWasNeverSeen) {
  job = RunningJob(6, 1);
  LaunchOn(&job, {0, 1, 2, 3}, "AllGather");
  ExpectHang(&job, HangVerdict::kRankNotSeen, {4, 5});
}

TEST_F(HangTest, ProcessGone) {
  for (const bool agent : {true, false}) {
    job = LaunchingJob({0, 1, 3});
    job.Advance(kSecond);
    End(&job, 2);
    const std::string ended = ClockWords(job.now());
    job.Advance(kHangAfter);
    SnapshotSet set = job.Set();
    if (!agent) {
      set.ended.push_back(set.processes[2]);
      set.processes.erase(set.processes.begin() + 2);
    }
    const DiagnosisResult result = Diagnosis().Update(set, job.now());
    ASSERT_EQ(result.size(), 1u);
    ASSERT_TRUE(result[0].hang);
    EXPECT_EQ(result[0].hang->verdict, HangVerdict::kProcessGone);
    EXPECT_THAT(result[0].hang->suspects, ElementsAre(2));
    EXPECT_THAT(result[0].hang->text, HasSubstr("rank 2 (pid 102, GPU 2) ended at " + ended +
                                                " without finalizing the communicator"));
  }
}

TEST_F(HangTest, ProcessGoneAndNobodyWaits) {
  job.process(2).end = ProcessEnd::kLost;
  ExpectNoHang(&job);
}

TEST_F(HangTest, ALostEventMaskMakesCountsUnknown) {
  job = LaunchingJob({0, 1, 2});
  job.Of(kComm, 3).event_mask = 0xf0a;
  job.process(3).event_mask_changes = 1;
  job.process(3).foreign_event_mask = 0xf0a | 0x40;  // it took nothing away
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
  job.process(3).foreign_event_mask = 0x2;
  ExpectHangNow(job, HangVerdict::kUnknown, {});
  // It is back, and was something else in between.
  job.process(3).event_mask_changes = 2;
  job.process(3).foreign_event_mask = 0xf0a;
  ExpectHangNow(job, HangVerdict::kUnknown, {});
}

TEST_F(HangTest, AProcessGoneAndARankThatHasNotCalled) {
  job = LaunchingJob({0, 1});
  job.process(2).end = ProcessEnd::kLost;
  const Hang hang = ExpectHang(&job, HangVerdict::kProcessGone, {2});
  EXPECT_EQ(hang.text,
            "The process of rank 2 (pid 102, GPU 2) ended without finalizing the communicator. "
            "Ranks 0 and 1 wait in "
            "AllReduce. Rank 3 (pid 103, GPU 3) has not called AllReduce (up to 1MiB) either.");
}

TEST_F(HangTest, EndedItsCommunicator) {
  job = LaunchingJob({0, 1, 2});
  job.Of(kComm, 3).finalized = true;
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(hang.text, HasSubstr("has finalized this communicator"));
}

TEST_F(HangTest, GraphsAreUnknownAndNotGuessed) {
  job = LaunchingJob({0, 1, 2});
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).captured = true;
  ExpectHang(&job, HangVerdict::kUnknown, {});
}

TEST_F(HangTest, WithoutCompletionsNothingIsSaid) {
  job = LaunchingJob({0, 1, 2});
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).has_heartbeat = false;
  ExpectNoHang(&job);
}

TEST_F(HangTest, WithProxyOperationsWhoIsIdleIsUnknown) {
  job = LaunchingJob({0, 1, 2});
  for (int rank = 0; rank < 4; ++rank) {
    CommunicatorSnapshot& communicator = job.Of(kComm, rank);
    communicator.has_heartbeat = false;
    communicator.operations_source = CompletionSource::kProxy;
    communicator.oldest_operation_realtime_ns = communicator.oldest_inflight_realtime_ns;
  }
  const Hang hang = ExpectHang(&job, HangVerdict::kUnknown, {});
  EXPECT_THAT(hang.text, HasSubstr("rank 3 (pid 103, GPU 3) has called fewer operations"));
}

TEST_F(HangTest, CallsThatWereNotCountedByOperationAreUnknown) {
  job = LaunchingJob({0, 1, 2});
  job.Of(kComm, 1).overflowed_calls = 1;
  ExpectHang(&job, HangVerdict::kUnknown, {});
}

// A histogram found no page, once: every call was counted all the same.
TEST_F(HangTest, AMissingHistogramDoesNotHideWhoHasNotCalled) {
  job = LaunchingJob({0, 1, 2});
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).overflowed_operations = 7;
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
}

TEST_F(HangTest, CalledButNotLaunched) {
  job.Call(kComm, 3, "AllReduce");
  job.Advance(kMs);
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  ExpectHang(&job, HangVerdict::kRankNotLaunched, {3});
}

// It has put two calls into one launch, and every call of its is in a launch.
TEST_F(HangTest, FewerLaunchesAloneAreNoReasonToBeInsideNccl) {
  job = LaunchingJob({0, 1, 2, 3});
  CommunicatorSnapshot& grouped = job.Of(kComm, 3);
  --grouped.launches;
  grouped.launches_completed = grouped.launches;
  grouped.oldest_inflight_realtime_ns = 0;
  grouped.last_launch_realtime_ns -= kMs;
  ExpectHang(&job, HangVerdict::kNoProgress, {});
}

TEST_F(HangTest, CountsThatStillMoveAreNotCalledDifferent) {
  job = LaunchingJob({0, 1, 3});
  LaunchOn(&job, {2}, "Broadcast");
  job.Advance(kHangAfter);
  for (int rank = 0; rank < 4; ++rank) {
    job.Of(kComm, rank).last_launch_realtime_ns = job.now() - kMs;
  }
  ExpectHangNow(job, HangVerdict::kUnknown, {});
}

// ---- Send and Recv ------------------------------------------------------------------------------

TEST_F(HangTest, SendAndRecvBlameNobody) {
  job = SimulatedJob(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  job.Launch(kComm, 1, "Recv");
  job.Launch(kComm, 2, "Recv");
  const Hang hang = ExpectHang(&job, HangVerdict::kPointToPoint, {});
  EXPECT_THAT(hang.text, HasSubstr("Ranks 1 and 2 wait in Recv. NCCL has not reported the peers"));
  EXPECT_THAT(hang.text, HasSubstr("Nothing in flight here: rank 0"));
}

TEST_F(HangTest, OfTwoRanksTheOtherIsThePeer) {
  job = SimulatedJob(2);
  job.AddCommunicator(kComm, {0, 1});
  job.Launch(kComm, 0, "Recv");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {1});
  EXPECT_THAT(hang.text, HasSubstr("has not called Send"));
}

TEST_F(HangTest, OfTwoRanksThePeersGpuHasNotBegun) {
  job = SimulatedJob(2);
  job.AddCommunicator(kComm, {0, 1});
  job.Launch(kComm, 0, "Recv");
  job.Launch(kComm, 1, "Send");
  SetBegun(&job, kComm, {kBegun, kNotBegun});
  ExpectHang(&job, HangVerdict::kRankNotBegun, {1});
}

TEST_F(HangTest, OwedCollectiveBehindSendsIsNamedOnlyIfNobodyElseIsLeft) {
  for (const int rank : {0, 1, 2}) {
    job.Launch(kComm, rank, "Send");
    job.Launch(kComm, rank, "AllReduce");
  }
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
  job.Complete(kComm, 2);
  ExpectHangNow(job, HangVerdict::kUnknown, {});
}

// A pipeline whose stages differ in their calls by right, and wait for each other.
TEST_F(HangTest, PipelineThatWorksIsNoHang) {
  job = SimulatedJob(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  for (int step = 0; step < 1000; ++step) {
    for (int stage = 0; stage < 3; ++stage) {
      job.Launch(kComm, stage + 1, "Recv");
      job.Advance(300 * kMs);
      job.Launch(kComm, stage, "Send");
      job.Advance(kMs);
      job.Complete(kComm, stage);
      job.Complete(kComm, stage + 1);
      ASSERT_EQ(HangOf(job), std::nullopt) << step;
    }
  }
}

TEST_F(HangTest, EveryVerdictHasAName) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(HangVerdict::kUnknown); ++i) {
    names.insert(HangVerdictName(static_cast<HangVerdict>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(HangVerdict::kUnknown) + 1);
}

// Two jobs at one endpoint: the shortest threshold of a job's own processes counts, and no other.
TEST_F(HangTest, EachJobHasItsOwnThreshold) {
  constexpr uint64_t kOther = kComm + 1;
  job = SimulatedJob(4);
  job.AddCommunicator(kComm, {0, 1});
  job.AddCommunicator(kOther, {2, 3});
  for (const uint64_t comm : {kComm, kOther}) job.Launch(comm, 0, "AllReduce");
  for (int rank = 0; rank < 4; ++rank) job.process(rank).hang_after_ns = 3600 * kSecond;
  job.Advance(15 * kSecond);
  const auto hangs = [this](std::size_t place) {
    return Diagnosis().Update(job.Set(), job.now())[place].hang.has_value();
  };
  EXPECT_FALSE(hangs(0) || hangs(1));
  job.process(1).hang_after_ns = 12 * kSecond;
  EXPECT_TRUE(hangs(0));
  EXPECT_FALSE(hangs(1));
  job.process(2).hang_after_ns = job.process(3).hang_after_ns = 0;  // not said: the default
  EXPECT_TRUE(hangs(0) && hangs(1));
}

}  // namespace
}  // namespace nccl_pulse
