// Calls whose launch NCCL does not report: Broadcast from 2.29.2 on, symmetric-memory kernels.
#include <vector>

#include "exporter/diagnosis/job_verdict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

void CallOn(SimulatedJob* job, const std::set<int>& ranks, const std::string& op) {
  for (const int rank : ranks) job->Call(kComm, rank, op);
}

// Rank 2's host is stuck. Rank 3 has called the Broadcast and waits for it; 0 and 1 are in the
// AllReduce behind it.
using Unreported = RunningJobTest;

TEST_F(Unreported, WhoWaitsInABroadcastIsNotAccused) {
  CallOn(&job, {0, 1, 3}, "Broadcast");
  LaunchOn(&job, {0, 1}, "AllReduce");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1));
  EXPECT_EQ(hang.text,
            "Rank 2 (pid 102, GPU 2) has not called AllReduce #21 (up to 1MiB) and Broadcast (up "
            "to 1MiB), and has nothing in flight here. Ranks 0 and 1 wait. Rank 3 (pid 103, GPU 3) "
            "has also called fewer operations than rank 0 (pid 100, GPU 0); whether it waits "
            "cannot be seen: NCCL does not report the launch of its last call.");
}

// The same, and rank 2 is on another node: of rank 3 nothing can be said.
TEST_F(Unreported, NobodyIsNamedWhereNotAllRanksAreSeen) {
  job = RunningJob(8, 2);
  CallOn(&job, {0, 1, 2, 3}, "Broadcast");
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  const Hang hang = ExpectHang(&job, HangVerdict::kUnknown, {});
  EXPECT_THAT(hang.text, HasSubstr("rank 3 (pid 103, GPU 3) has called fewer operations"));
}

// The root never calls; nothing is in flight as far as NCCL reports.
TEST_F(Unreported, TheRootThatNeverCallsIsNamedByCounts) {
  job.Advance(kSecond);
  CallOn(&job, {1, 2, 3}, "Broadcast");
  const int64_t called = job.now();
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kRankNotCalled, {0});
  EXPECT_THAT(hang.waiting, ElementsAre(1, 2, 3));
  EXPECT_EQ(hang.op, "Broadcast");
  EXPECT_EQ(hang.since_realtime_ns, called);
  EXPECT_EQ(hang.text,
            "Rank 0 (pid 100, GPU 0) has not called Broadcast (up to 1MiB), and has nothing in "
            "flight here. Ranks 1, 2 and 3 have called Broadcast, whose launch NCCL does not "
            "report: whether they still wait cannot be seen.");
}

// It may be the root, which has sent and left: no hang, and no all-clear.
TEST_F(Unreported, OneAheadAloneMayHaveLeftABroadcast) {
  for (const bool are_behind_idle : {true, false}) {
    job = RunningJob();
    if (!are_behind_idle) CallOn(&job, {0, 1, 2, 3}, "Broadcast");
    CallOn(&job, {0}, "Broadcast");
    ExpectNoHang(&job, 3600 * kSecond);
    // Of two, at most one is the root.
    CallOn(&job, {1}, "Broadcast");
    ExpectHang(&job, HangVerdict::kRankNotCalled, {2, 3});
  }
}

TEST_F(Unreported, OneAheadAloneWaitsInAnAllReduce) {
  CallOn(&job, {0}, "AllReduce");
  CallOn(&job, {0}, "Broadcast");
  ExpectHang(&job, HangVerdict::kRankNotCalled, {1, 2, 3});
}

// As above, of an operation that nobody leaves before all have come: they do wait.
TEST_F(Unreported, InASymmetricAllReduceTheOthersWait) {
  CallOn(&job, {1, 2, 3}, "AllReduce");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {0});
  EXPECT_THAT(hang.text, HasSubstr("and which no rank leaves before all ranks have called it."));
}

// A communicator on which nothing but Broadcast is called: the root's last one is not seen either.
TEST_F(Unreported, TheFurthestBehindIsNamedThoughItsOwnCallsAreNotReported) {
  for (int i = 0; i < 5; ++i) CallOn(&job, {0, 1, 2, 3}, "Broadcast");
  job.Advance(kSecond);
  CallOn(&job, {1, 2, 3}, "Broadcast");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {0});
  EXPECT_THAT(hang.text, Not(HasSubstr("nothing in flight")));
  EXPECT_THAT(hang.text, HasSubstr("Whether its earlier calls have completed cannot be seen."));
}

TEST_F(Unreported, OfSeveralBehindOnlyTheFurthestIsNamed) {
  CallOn(&job, {0, 1, 2, 3}, "Broadcast");
  CallOn(&job, {1, 2, 3}, "Broadcast");
  CallOn(&job, {1, 2}, "Broadcast");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {0});
  EXPECT_THAT(hang.text, HasSubstr("Rank 3 (pid 103, GPU 3) has also called fewer operations"));
}

// A program that does nothing after its last Broadcast is healthy.
TEST_F(Unreported, NoneWhileAllHaveCalledTheSame) {
  CallOn(&job, {0, 1, 2, 3}, "Broadcast");
  ExpectNoHang(&job, 3600 * kSecond);
  EXPECT_EQ(DiagnosisOf(job).queued, std::nullopt);
}

TEST_F(Unreported, NoneWhileWhoIsBehindIsOnItsWay) {
  CallOn(&job, {1, 2, 3}, "Broadcast");
  job.Advance(kHangAfter);
  // It works in an earlier launch, since a moment ago.
  job.Of(kComm, 0).launches_completed -= 1;
  job.Of(kComm, 0).oldest_inflight_realtime_ns = job.now() - kSecond;
  EXPECT_EQ(HangOf(job), std::nullopt);
  // It has called something a moment ago.
  SimulatedJob calling = RunningJob();
  CallOn(&calling, {1, 2, 3}, "Broadcast");
  CallOn(&calling, {1, 2, 3}, "Broadcast");
  calling.Advance(kHangAfter);
  CallOn(&calling, {0}, "Broadcast");
  EXPECT_EQ(HangOf(calling), std::nullopt);
}

TEST_F(Unreported, NoneWhileOneThatIsAheadGoesOn) {
  CallOn(&job, {1, 2, 3}, "Broadcast");
  job.Advance(kHangAfter);
  job.Launch(kComm, 1, "AllReduce");
  EXPECT_EQ(HangOf(job), std::nullopt);
  // It has done it without rank 0: nobody need wait.
  job.Complete(kComm, 1);
  ExpectNoHang(&job);
}

// Each further call renews the time since when calls stand, on whatever rank it is made.
TEST_F(Unreported, NoneWhileCallsAreMade) {
  Diagnosis diagnosis;
  for (int i = 0; i < 100; ++i) {
    CallOn(&job, {0, 1, 2, 3}, "Broadcast");
    SimulatedJob between = job;  // rank 0 is read a moment before it calls
    CallOn(&between, {1, 2, 3}, "Broadcast");
    EXPECT_EQ(diagnosis.Update(between.Set(), between.now())[0].hang, std::nullopt) << i;
    job.Advance(kSecond);
  }
}

// Rank 1 has gone on to a launch that is reported: what it called before has ended.
TEST_F(Unreported, ALaunchOfAnotherRankIsProgress) {
  CallOn(&job, {1, 2, 3}, "Broadcast");
  job.Advance(kHangAfter - kSecond);
  job.Launch(kComm, 1, "AllReduce");
  job.Advance(2 * kSecond);
  EXPECT_FALSE(HangOf(job));
}

TEST_F(Unreported, AProcessThatEndedOrDoesNotRunBehindABroadcast) {
  SimulatedJob gone = RunningJob();
  CallOn(&gone, {1, 2, 3}, "Broadcast");
  gone.process(0).end = ProcessEnd::kLost;
  gone.process(0).end_realtime_ns = gone.now();
  ExpectHang(&gone, HangVerdict::kProcessGone, {0});
  SimulatedJob stopped = RunningJob();
  CallOn(&stopped, {1, 2, 3}, "Broadcast");
  AdvanceWithout(&stopped, 0);
  ExpectHangNow(stopped, HangVerdict::kProcessStopped, {0});
  // It had called all that the others have.
  SimulatedJob done = RunningJob();
  CallOn(&done, {0, 1, 2, 3}, "Broadcast");
  done.process(0).end = ProcessEnd::kLost;
  done.Advance(kHangAfter);
  EXPECT_EQ(HangOf(done), std::nullopt);
}

TEST_F(Unreported, DifferentCallsThatAllStand) {
  for (const int rank : {0, 1, 2}) job.Call(kComm, rank, "Broadcast", 4);
  job.Call(kComm, 3, "Broadcast", 6);
  ExpectHang(&job, HangVerdict::kMismatched, {3});
}

// Ranks 0 and 1 wait; what rank 2 called a moment ago it may be about to launch.
TEST_F(Unreported, AFreshCallIsNoMismatchYet) {
  job = LaunchingJob({0, 1});
  job.Advance(kHangAfter);
  job.Call(kComm, 2, "AllGather");
  ExpectHangNow(job, HangVerdict::kUnknown, {});
  job.Advance(kSecond);
  ExpectHangNow(job, HangVerdict::kMismatched, {2, 3});
}

// Process 0 waits for process 4 in another communicator.
TEST_F(Unreported, WhoWaitsInAnotherCommunicatorIsNotTheCulprit) {
  job = SimulatedJob(5);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  job.AddCommunicator(1, {0, 4});
  job.Launch(1, 0, "AllReduce");
  CallOn(&job, {1, 2, 3}, "Broadcast");
  ExpectHang(&job, HangVerdict::kBlockedElsewhere, {0});
  ExpectHangNow(job, HangVerdict::kRankNotCalled, {1}, 1);
}

// Process 0 waits for process 3 there, and process 3 has called here: whether it waits is certain
// in an AllReduce only.
TEST_F(Unreported, ACircleOverCallsThatAreNotReported) {
  for (const bool is_certain : {false, true}) {
    job = RunningJob();
    job.AddCommunicator(1, {0, 3});
    job.Launch(1, 0, "AllReduce");
    CallOn(&job, {1, 2, 3}, is_certain ? "AllReduce" : "Broadcast");
    const HangVerdict verdict =
        is_certain ? HangVerdict::kCircularWait : HangVerdict::kRankNotCalled;
    ExpectHang(&job, verdict, {0});
    ExpectHangNow(job, verdict, {1}, 1);
  }
}

// ---- Send and Recv, whose launches NCCL reports ------------------------------------------------

// Rank 0 has sent, and now receives, in a direction in which nothing is connected.
SimulatedJob PairInsideNccl(int nranks = 2) {
  SimulatedJob job(nranks);
  std::vector<int> all;
  for (int rank = 0; rank < nranks; ++rank) all.push_back(rank);
  job.AddCommunicator(kComm, all);
  for (int step = 0; step < 50; ++step) {
    job.Launch(kComm, 0, "Send");
    job.Launch(kComm, 1, "Recv");
    job.Advance(kMs);
    job.Complete(kComm, 0);
    job.Complete(kComm, 1);
  }
  job.Advance(kSecond);
  job.Call(kComm, 0, "Recv");
  job.Of(kComm, 0).are_unreported_in_group = true;
  return job;
}

TEST_F(Unreported, OfTwoRanksThePeerOfOneThatConnects) {
  job = PairInsideNccl();
  const int64_t called = job.now();
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kRankNotCalled, {1});
  EXPECT_EQ(hang.text,
            "Rank 1 (pid 101, GPU 1) has not called Send, and has nothing in flight here. Rank 0 "
            "waits in Recv, not launched: inside NCCL (setting up a connection, or a group that "
            "was not ended).");
  EXPECT_EQ(hang.missing_call, "Send");
  EXPECT_EQ(hang.since_realtime_ns, called);
  EXPECT_THAT(hang.waiting, ElementsAre(0));
}

TEST_F(Unreported, NobodyIsNamedWhereBothConnect) {
  job = PairInsideNccl();
  job.Call(kComm, 1, "Send");
  job.Of(kComm, 1).are_unreported_in_group = true;
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kPointToPoint, {});
  EXPECT_THAT(hang.text, HasSubstr("Ranks 0 and 1 wait, not launched: inside NCCL (setting up a "
                                   "connection, or a group that was not ended)."));
}

// A Send and a Recv of a rank with itself, in place, or calls that failed: the host has gone on, and
// nobody owes it anything. It looks the same where the end of the group is not asked for.
TEST_F(Unreported, NobodyIsNamedForCallsThatMayHaveReturned) {
  job = PairInsideNccl();
  job.Call(kComm, 0, "Send");
  job.Of(kComm, 0).are_unreported_in_group = false;
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kPointToPoint, {});
  EXPECT_THAT(hang.text, HasSubstr("Rank 0 waits in Send, not launched: the call waits in NCCL, "
                                   "has failed, or was to its own rank."));
  SimulatedJob exiting = job;
  exiting.process(1).poller = PollerState::kEnded;
  EXPECT_THAT(HangNow(exiting).suspects, IsEmpty());
  job.Of(kComm, 1).finalized = true;
  EXPECT_THAT(HangNow(job).suspects, IsEmpty());
}

// Their other ranks go on: that tells nothing of this call, or of its peer.
TEST_F(Unreported, OfSeveralRanksNobodyIsNamedForOneThatConnects) {
  job = PairInsideNccl(4);
  for (int second = 0; second < 60; ++second) {
    job.Launch(kComm, 2, "Send");
    job.Launch(kComm, 3, "Recv");
    job.Complete(kComm, 2);
    job.Complete(kComm, 3);
    job.Advance(kSecond);
  }
  const Hang hang = ExpectHang(&job, HangVerdict::kPointToPoint, {});
  EXPECT_EQ(hang.text,
            "Rank 0 waits in Recv, not launched: inside NCCL (setting up a connection, or a group "
            "that was not ended). NCCL has not reported the peers of "
            "these Sends and Recvs. Nothing in flight here: rank 1 (pid 101, GPU 1), rank 2 (pid "
            "102, GPU 2) and rank 3 (pid 103, GPU 3).");
}

TEST_F(Unreported, OneThatConnectsBesideOneThatWaitsOnItsGpu) {
  job = PairInsideNccl(3);
  job.Launch(kComm, 2, "Recv");
  const Hang hang = ExpectHang(&job, HangVerdict::kPointToPoint, {});
  EXPECT_THAT(hang.text, HasSubstr("Rank 0 (pid 100, GPU 0) has called Send or Recv but not "
                                   "launched: inside NCCL"));
}

// Hosts wait inside NCCL for their first connections: NCCL does not report for which rank.
TEST_F(Unreported, TheOnlyRankThatHasNotComeToTheFirstCalls) {
  for (const bool has_ended : {false, true}) {
    job = SimulatedJob(4);
    job.AddCommunicator(kComm, {0, 1, 2, 3});
    for (const int rank : {0, 1, 3}) {
      job.Call(kComm, rank, "Recv");
      job.Of(kComm, rank).are_unreported_in_group = true;
    }
    if (has_ended) End(&job, 2);
    ExpectHang(&job, has_ended ? HangVerdict::kProcessGone : HangVerdict::kRankNotCalled, {2});
  }
}

// Rank 3 has not come to its pipeline, nor to what rank 4 waits in. Its neighbors connect to it.
TEST_F(Unreported, OneThatConnectsIsNotNamedForOneThatHasNotCome) {
  job = SimulatedJob(5);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  for (const uint64_t other : {1, 2}) {
    job.AddCommunicator(other, {other == 1 ? 2 : 3, 4});
    for (const int rank : {0, 1}) {
      job.Launch(other, rank, "AllReduce");
      job.Complete(other, rank);
    }
  }
  for (const int rank : {0, 1, 2}) {
    job.Call(kComm, rank, "Send");
    job.Of(kComm, rank).are_unreported_in_group = true;
  }
  for (const uint64_t other : {1, 2}) job.Launch(other, 1, "AllReduce");
  job.Advance(kHangAfter);
  const auto expect_rank_3 = [this] {
    const SnapshotSet set = job.Set();
    const JobVerdict verdict = JudgeJob(set, Diagnosis().Update(set, job.now()), job.now());
    ASSERT_EQ(verdict.roots.size(), 1U);
    ASSERT_EQ(verdict.roots[0].ranks.size(), 1U);
    EXPECT_EQ(verdict.roots[0].ranks[0].process->global_rank, "3");
  };
  expect_rank_3();
  const SimulatedJob live = job;
  End(&job, 3);  // long after the others began to wait
  expect_rank_3();
  job = live;
  End(&job, 2);  // while it connects, and others wait for it
  expect_rank_3();
  job = live;
  job.Of(kComm, 2).has_heartbeat = false;
  job.Of(kComm, 2).driver_error = 700;
  job.Of(kComm, 2).driver_error_realtime_ns = job.now();
  expect_rank_3();
}

// The same with a first collective: rank 0 waits for rank 1, which ends while it connects.
TEST_F(Unreported, WhoEndedWhileItConnectedIsNotNamed) {
  job = SimulatedJob(4);
  job.AddCommunicator(kComm, {1, 2, 3});
  job.AddCommunicator(kOther, {0, 1});
  job.Collective(kOther, "AllReduce", {0, 0}, kMs);
  for (const int rank : {0, 1}) {
    job.Call(kComm, rank, "AllReduce");
    job.Of(kComm, rank).are_unreported_in_group = true;
  }
  job.Launch(kOther, 0, "AllReduce");
  job.Advance(kHangAfter);
  End(&job, 1);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {1}, kOther);
}

TEST_F(Unreported, ThePeerOfOneThatConnectsIsNotSeen) {
  job = SimulatedJob(1);
  job.AddCommunicator(kComm, {0}, 2);
  job.Call(kComm, 0, "Recv");
  ExpectHang(&job, HangVerdict::kRankNotSeen, {1});
}

// What a rank makes of calls to itself, in place, has no launch.
TEST_F(Unreported, ARankWithoutOthersConnectsToNobody) {
  job = SimulatedJob(1);
  job.AddCommunicator(kComm, {0});
  job.Call(kComm, 0, "Send");
  job.Call(kComm, 0, "Recv");
  ExpectNoHang(&job, 3600 * kSecond);
}

// The peer waits in another communicator, for the one that connects.
TEST_F(Unreported, ACircleOverOneThatConnects) {
  job = PairInsideNccl();
  job.AddCommunicator(kOther, {0, 1});
  job.Launch(kOther, 1, "AllReduce");
  ExpectHang(&job, HangVerdict::kCircularWait, {1});
}

// ---- a collective inside NCCL ---------------------------------------------------------------------

// The first call of a communicator, whose connections are not made.
TEST_F(Unreported, NobodyIsNamedWhereAllAreInsideNcclForMinutes) {
  constexpr int64_t kLongConnect = 300 * kSecond;
  job = SimulatedJob(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  job.Advance(kSecond);
  CallOn(&job, {0, 1, 2, 3}, "AllReduce");
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).are_unreported_in_group = true;
  ExpectNoHang(&job, kLongConnect - 1);  // a large job connects slowly
  job.Advance(1);
  const Hang hang = ExpectHangNow(job, HangVerdict::kNoProgress, {});
  EXPECT_EQ(hang.situation, Situation::kInsideNccl);
  EXPECT_EQ(hang.text,
            "All ranks have called AllReduce, and for minutes no rank has launched it: inside NCCL "
            "(setting up a connection, or a group that was not ended). Which ranks block it is not "
            "known.");
  SimulatedJob out = job;  // one has come out, and may just have nothing to do
  out.Of(kComm, 2).are_unreported_in_group = false;
  EXPECT_EQ(HangOf(out), std::nullopt);
  job.Launch(kComm, 3, "AllGather");
  EXPECT_EQ(HangOf(job), std::nullopt);  // progress
}

}  // namespace
}  // namespace nccl_pulse
