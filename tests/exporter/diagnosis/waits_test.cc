// The principles of the graph of waits: a cause is older than its effect, a GPU that has not begun
// outranks a host that has not called, only who owes is suspected.
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/job_verdict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "metrics/call_order.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

struct Named {
  HangVerdict verdict;
  std::set<std::string> global_ranks;
  bool operator==(const Named& other) const {
    return verdict == other.verdict && global_ranks == other.global_ranks;
  }
};
void PrintTo(const Named& named, std::ostream* out) {
  *out << HangVerdictName(named.verdict) << ":";
  for (const std::string& rank : named.global_ranks) *out << " " << rank;
}

std::vector<Named> NamedNow(const SimulatedJob& job) {
  std::vector<Named> all;
  const SnapshotSet set = job.Set();
  for (const JobRoot& root : JudgeJob(set, Diagnosis().Update(set, job.now()), job.now()).roots) {
    Named named{root.verdict, {}};
    for (const JobRank& rank : root.ranks) {
      named.global_ranks.insert(rank.process == nullptr ? "?" : rank.process->global_rank);
    }
    all.push_back(std::move(named));
  }
  return all;
}

std::vector<Named> NamedLater(SimulatedJob* job) {
  job->Advance(kHangAfter);
  return NamedNow(*job);
}

// Eight ranks, four on each of two hosts.
SimulatedJob TwoHosts() {
  SimulatedJob job(8);
  job.AddCommunicator(kComm, {0, 1, 2, 3, 4, 5, 6, 7}, 0, 2);
  for (int rank = 0; rank < 8; ++rank) job.process(rank).hostname = rank < 4 ? "node-0" : "node-1";
  for (int i = 0; i < 20; ++i) {
    job.Collective(kComm, "AllReduce", std::vector<int64_t>(8, 0), kMs);
    job.Advance(50 * kMs);
  }
  return job;
}

struct CauseBeforeEffect : testing::Test {
  SimulatedJob job = TwoHosts();
};

TEST_F(CauseBeforeEffect, OfSeveralDeathsTheFirstIsNamed) {
  LaunchOn(&job, {1, 2, 3, 4, 5, 6, 7}, "AllReduce");
  job.Advance(100 * kMs);
  End(&job, 0);
  job.Advance(400 * kMs);  // the launcher ends the others of its node
  for (const int rank : {1, 2, 3}) End(&job, rank);
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kProcessGone, {"0"}}));
}

// No living rank waits for the rank that died first.
TEST_F(CauseBeforeEffect, OfDeathsOnOneHostTheFirstIsNamedEvenIfNobodyWaitsForIt) {
  for (const bool is_of_other : {true, false}) {
    job = TwoHosts();
    job.AddCommunicator(kOther, {0, 1});
    const std::vector<int> members = is_of_other ? std::vector{0, 1, 5} : std::vector{1, 5};
    const auto last = static_cast<int>(members.size()) - 1;
    job.AddCommunicator(kOther + 1, members);
    job.Launch(kOther, 0, "AllReduce");
    job.Launch(kOther + 1, last, "Recv");
    job.Of(kOther + 1, last).peers = {{}, {static_cast<uint64_t>(last) - 1}, true};
    job.Advance(100 * kMs);
    End(&job, 0);
    job.Advance(400 * kMs);
    End(&job, 1);
    EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kProcessGone, {"0"}}));
  }
}

// Both ranks of their communicator have ended, and rank 5 waits for the second one.
TEST_F(CauseBeforeEffect, OfTwoDeathsInOneCommunicatorTheFirstIsNamed) {
  job.AddCommunicator(kOther, {0, 1});
  job.AddCommunicator(kOther + 1, {1, 5});
  job.Launch(kOther, 1, "AllReduce");
  job.Launch(kOther + 1, 1, "AllReduce");
  job.Advance(100 * kMs);
  End(&job, 0);
  job.Advance(4 * kSecond);
  End(&job, 1);
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kProcessGone, {"0"}}));
}

// The launcher ended the culprit, too.
TEST_F(CauseBeforeEffect, ARankThatOthersHadWaitedForIsNotTakenForAVictimOfTheLauncher) {
  LaunchOn(&job, {0, 2, 3, 4, 5, 6, 7}, "AllReduce");
  job.Advance(4 * kSecond);
  End(&job, 0);  // by a watchdog
  job.Advance(400 * kMs);
  for (const int rank : {1, 2, 3}) End(&job, rank);
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kProcessGone, {"1"}}));
}

// Killed so soon that its death could be why the others wait. But it waited itself before.
TEST_F(CauseBeforeEffect, AVictimThatHadWaitedIsNotNamed) {
  for (const bool has_called : {true, false}) {
    job = TwoHosts();
    job.AddCommunicator(kOther, {0, 5});
    job.Launch(kOther, 0, "AllReduce");
    if (has_called) job.Launch(kComm, 0, "AllReduce");
    LaunchOn(&job, {1, 2, 3, 4, 6, 7}, "AllReduce");
    job.Advance(4 * kSecond);
    End(&job, 0);
    EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"5"}}));
  }
}

TEST_F(CauseBeforeEffect, TheFirstDeathInsideACallIsNamed) {
  LaunchOn(&job, {0, 1, 2, 3, 4, 5, 6, 7}, "AllReduce");
  job.Advance(100 * kMs);
  End(&job, 2);
  job.Advance(400 * kMs);
  for (const int rank : {0, 1, 3}) End(&job, rank);
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kProcessGone, {"2"}}));
}

TEST_F(CauseBeforeEffect, AVictimOfAShortWatchdogKeepsItsWait) {
  LaunchOn(&job, {0, 1, 2, 4, 5, 6, 7}, "AllReduce");
  job.Advance(6 * kSecond);  // less than the threshold
  End(&job, 0);
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"3"}}));
}

TEST_F(CauseBeforeEffect, AnAbortedVictimKeepsItsWait) {
  LaunchOn(&job, {0, 1, 2, 4, 5, 6, 7}, "AllReduce");
  job.Advance(3 * kSecond);
  job.Complete(kComm, 0);
  job.Of(kComm, 0).finalized = true;
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"3"}}));
}

// Its last call here took long and ended, and it has waited for rank 5 since.
TEST_F(CauseBeforeEffect, AnAbortedVictimIsNotNamedForACallInWhichNobodyWaits) {
  job.AddCommunicator(kOther, {4, 5});
  LaunchOn(&job, {0, 1, 2, 3, 4, 5, 6, 7}, "AllReduce");
  job.Advance(3 * kSecond);
  for (int rank = 0; rank < 8; ++rank) job.Complete(kComm, rank);
  LaunchOn(&job, {0, 1, 2, 3, 6, 7}, "AllReduce");
  job.Launch(kOther, 0, "AllReduce");
  job.Advance(4 * kSecond);
  job.Complete(kOther, 0);
  for (const uint64_t id : {kComm, kOther}) job.Of(id, id == kComm ? 4 : 0).finalized = true;
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"5"}}));
}

TEST_F(CauseBeforeEffect, AStopLongAfterTheWaitBeganIsNotItsCause) {
  LaunchOn(&job, {0, 1, 2, 4, 5, 6, 7}, "AllReduce");
  job.Advance(kHangAfter);
  const int64_t stopped = job.now();
  job.Advance(kHangAfter);
  job.process(1).last_poll_realtime_ns = stopped;
  EXPECT_THAT(NamedNow(job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"3"}}));
}

using Precedence = CauseBeforeEffect;

TEST_F(Precedence, AGpuThatHasNotBegunOutranksAHostThatHasNotCalled) {
  LaunchOn(&job, {0, 1, 2, 4, 5, 6, 7}, "AllReduce");
  job.Of(kComm, 1).oldest_launch = kNotBegun;
  for (const int rank : {0, 2, 4, 5, 6, 7}) job.Of(kComm, rank).oldest_launch = kBegun;
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotBegun, {"1"}}));
}

TEST_F(Precedence, ADeathOutranksAHostThatWaitsOutsideOfNccl) {
  job.AddCommunicator(kOther, {0, 1, 2, 3}, 0, 1);
  for (const int rank : {0, 1, 2, 3}) job.Launch(kOther, rank, "AllReduce");
  LaunchOn(&job, {4, 5, 6}, "AllReduce");  // rank 7 waits for rank 0 by other means
  job.Advance(100 * kMs);
  End(&job, 2);
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kProcessGone, {"2"}}));
}

// All have launched the first call but rank 4, and the second but rank 0, which reads the result of the
// first. Rank 1 did not wait for it.
using OnlyWhoOwes = CauseBeforeEffect;

TEST_F(OnlyWhoOwes, AHostThatAloneWaitsForItsWorkIsNotNamed) {
  job.AddCommunicator(kOther, {0, 1, 4});
  for (const int rank : {0, 1}) job.Launch(kOther, rank, "AllReduce");
  job.Advance(kMs);
  LaunchOn(&job, {1, 2, 3, 5, 6, 7}, "AllReduce");
  job.Of(kComm, 1).oldest_launch = kNotBegun;
  for (const int rank : {2, 3, 5, 6, 7}) job.Of(kComm, rank).oldest_launch = kBegun;
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"4"}}));
}

// Rank 3 was late to the previous call, and rank 0 gave up before.
TEST_F(OnlyWhoOwes, ARankThatAbortedBeforeTheOthersWaitedIsNamed) {
  LaunchOn(&job, {0, 1, 2, 4, 5, 6, 7}, "AllReduce");
  job.Advance(3 * kSecond);
  job.Complete(kComm, 0);
  job.Of(kComm, 0).finalized = true;
  job.Advance(3 * kSecond);
  LaunchOn(&job, {3}, "AllReduce");
  for (const int rank : {1, 2, 3, 4, 5, 6, 7}) job.Complete(kComm, rank);
  LaunchOn(&job, {1, 2, 3, 4, 5, 6, 7}, "AllReduce");
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"0"}}));
}

// Rank 0 has called and gone, after an error of its own, before rank 1 has called.
TEST_F(OnlyWhoOwes, ARankThatAbortedTheCallAtOnceIsNamed) {
  LaunchOn(&job, {0, 2, 3, 4, 5, 6, 7}, "AllReduce");
  job.Advance(500 * kMs);
  job.Complete(kComm, 0);
  job.Of(kComm, 0).finalized = true;
  job.Advance(200 * kMs);
  LaunchOn(&job, {1}, "AllReduce");
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"0"}}));
}

// Rank 1 makes a barrier in an exception handler, and the others are in the step: ranks 0, 2 and 3
// wait for it, and ranks 4 to 7 for rank 0.
TEST_F(OnlyWhoOwes, ARankThatIsAloneInACallIsNamedOfACircle) {
  for (const bool have_others_launched : {false, true}) {
    job = TwoHosts();
    job.AddCommunicator(kOther, {0, 1, 2, 3});
    job.AddCommunicator(kOther + 1, {0, 4, 5, 6, 7}, 0, 2);
    for (const int rank : {0, 2, 3}) job.Launch(kOther, rank, "AllReduce");
    for (const int rank : {1, 2, 3, 4}) job.Launch(kOther + 1, rank, "AllReduce");
    job.Advance(kMs);
    LaunchOn(&job, {1}, "AllReduce");
    job.Of(kComm, 1).oldest_launch = kBegun;
    for (const int rank : {0, 2, 3, 4, 5, 6, 7}) {  // behind the calls in which they wait
      if (!have_others_launched) continue;
      LaunchOn(&job, {rank}, "AllReduce");
      job.Of(kComm, rank).oldest_launch = kNotBegun;
    }
    EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"1"}}));
    EXPECT_EQ(HangNow(job, kOther).text,
              "Rank 1 (pid 101, GPU 1) has not called AllReduce (up to 1MiB), and has nothing in "
              "flight here. Ranks 0, 2 and 3 wait in AllReduce. Rank 1 waits in communicator "
              "00000000000000c0, for ranks that wait for it.");
  }
}

// As above, but the others have already launched the call that the barrier looks like.
TEST_F(OnlyWhoOwes, ARankThatSeveralWaitForIsNamedOfACircle) {
  for (const bool is_several : {true, false}) {
    job = TwoHosts();
    job.AddCommunicator(kOther, is_several ? std::vector{0, 1, 2} : std::vector{0, 1});
    for (const int rank : {0, 2}) {
      if (rank == 0 || is_several) job.Launch(kOther, rank, "AllReduce");
    }
    job.Advance(kMs);
    LaunchOn(&job, {0, 1, 2, 3, 4, 5, 6, 7}, "AllReduce");
    for (const int rank : {1, 2, 3, 4, 5, 6, 7}) job.Of(kComm, rank).oldest_launch = kBegun;
    for (const int rank : {0, 2}) {
      if (rank == 0 || is_several) job.Of(kComm, rank).oldest_launch = kNotBegun;
    }
    EXPECT_THAT(NamedLater(&job),
                ElementsAre(is_several ? Named{HangVerdict::kRankNotCalled, {"1"}}
                                       : Named{HangVerdict::kCircularWait, {"0", "1"}}));
  }
}

TEST_F(OnlyWhoOwes, ARankThatHasLeftAfterAllItOwedIsNotNamed) {
  LaunchOn(&job, {0, 1, 2, 3, 4, 5, 6, 7}, "Broadcast");
  job.Complete(kComm, 0);  // the root
  job.Of(kComm, 0).finalized = true;
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kNoProgress, {}}));
}

TEST_F(OnlyWhoOwes, ARankThatLeftWithoutTheCallIsNamed) {
  LaunchOn(&job, {1, 2, 3, 4, 5, 6, 7}, "AllReduce");
  job.Of(kComm, 0).finalized = true;
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"0"}}));
}

// Rank 3 ended, ranks 0 and 1 aborted and make a communicator of three; rank 2 stays in the old one.
TEST_F(OnlyWhoOwes, ARankThatStaysInWhatTheOthersHaveLeftIsNamed) {
  job = LaunchingJob({0, 1, 2});
  End(&job, 3);
  job.Advance(kSecond);
  job.AddCommunicator(kOther, {0, 1}, 3);
  for (const int rank : {0, 1}) {
    job.Of(kOther, rank).init_realtime_ns = job.now();
    job.Of(kComm, rank).finalized = true;
    job.Advance(20 * kMs);
    job.Complete(kComm, rank);  // as is seen a moment later
  }
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"2"}}));
  EXPECT_EQ(HangNow(job).text,
            "Rank 2 (pid 102, GPU 2) is still in this communicator. The others have aborted it and "
            "gone on.");
}

// The process of rank 3 served the node's endpoint, and is forgotten.
TEST_F(OnlyWhoOwes, ARankThatStaysThoughNobodyKnowsTheOneThatEnded) {
  job = SimulatedJob(3);
  job.AddCommunicator(kComm, {0, 1, 2}, 4);
  for (const int rank : {0, 1, 2}) job.Launch(kComm, rank, "AllReduce");
  job.Advance(kSecond);
  job.AddCommunicator(kOther, {0, 1}, 3);
  for (const int rank : {0, 1}) {
    job.Of(kOther, rank).init_realtime_ns = job.now();
    job.Of(kComm, rank).finalized = true;
    job.Complete(kComm, rank);
  }
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"2"}}));
}

// Twenty AllReduces were launched six seconds ago, and five of them have completed just now.
SimulatedJob BacklogJob() {
  SimulatedJob job = RunningJob();
  for (int i = 0; i < 20; ++i) LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  job.Advance(6 * kSecond);
  for (int rank = 0; rank < 4; ++rank) {
    job.Of(kComm, rank).launches_completed += 5;
    job.Of(kComm, rank).last_completion_realtime_ns = job.now();
  }
  return job;
}

// The first launches were known to end one after the other; later ones have no event of their own.
TEST(Waits, ABacklogOfLaunchesMayGoOnUnseen) {
  SimulatedJob job = BacklogJob();
  job.Advance(20 * kSecond);
  EXPECT_THAT(NamedNow(job), IsEmpty());
  const DiagnosisResult result = Diagnosis().Update(job.Set(), job.now());
  const Health health = HealthOf(job.Set(), result, job.now());
  EXPECT_EQ(health.status, HealthStatus::kIncomplete);
  ASSERT_TRUE(result[0].queued);
  EXPECT_THAT(result[0].queued->text, testing::HasSubstr("and may go on unseen"));
  job.Advance(20 * kSecond);
  EXPECT_THAT(NamedNow(job), ElementsAre(Named{HangVerdict::kNoProgress, {}}));
}

TEST(Waits, ABacklogWhoseOldestLaunchIsKnownNotToEnd) {
  SimulatedJob job = BacklogJob();
  job.Of(kComm, 1).oldest_launch = kBegun;
  job.Of(kComm, 1).is_at_oldest = true;
  job.Advance(20 * kSecond);
  EXPECT_THAT(NamedNow(job), ElementsAre(Named{HangVerdict::kNoProgress, {}}));
}

// The server had no room for the process of rank 3.
TEST(Waits, ARankWhoseProcessWasRejectedIsNotMissing) {
  SimulatedJob job(3);
  job.AddCommunicator(kComm, {0, 1, 2}, 4);
  for (const int rank : {0, 1, 2}) job.Launch(kComm, rank, "AllReduce");
  job.Advance(kHangAfter);
  SnapshotSet set = job.Set();
  for (const bool is_rejected : {false, true}) {
    set.unread_processes = is_rejected ? 1 : 0;
    const JobVerdict verdict = JudgeJob(set, Diagnosis().Update(set, job.now()), job.now());
    ASSERT_THAT(verdict.roots, SizeIs(1));
    EXPECT_EQ(verdict.roots[0].verdict == HangVerdict::kRankNotSeen, !is_rejected);
  }
}

// Three ranks have made one more call. What they had completed of the calls before is known late.
SimulatedJob LateCompletions(int late_by) {
  SimulatedJob job = LaunchingJob({0, 2, 3});
  for (const int rank : {0, 2, 3}) {
    CommunicatorSnapshot& comm = job.Of(kComm, rank);
    comm.launches_completed -= late_by;
    std::vector<LastCallSnapshot> calls(10);
    for (uint64_t i = 0; i < 10; ++i) {
      calls[i].op = i % 2 == 0 ? "AllGather" : "AllReduce";
      calls[i].launch = calls[i].collective_number = comm.launches - 9 + i;
      calls[i].launch_realtime_ns = job.now();
    }
    comm.call_order = CallOrderOf(calls, comm.launches_completed);
  }
  return job;
}

TEST_F(OnlyWhoOwes, CompletionsThatAreKnownLateBlameNobodyElse) {
  for (const int late_by : {0, 1, 5}) {
    job = LateCompletions(late_by);
    EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"1"}}))
        << late_by;
    // Nor if a driver call holds the background threads of the others.
    for (const int rank : {0, 2, 3}) {
      job.process(rank).last_poll_realtime_ns = job.now() - kHangAfter + kSecond;
    }
    EXPECT_THAT(NamedNow(job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"1"}})) << late_by;
  }
}

void LoseCounter(SimulatedJob* job, int rank, uint64_t untold) {
  CommunicatorSnapshot& comm = job->Of(kComm, rank);
  comm.launches_completed = comm.launches - untold;
  comm.oldest_launch = OldestLaunch::kUntold;
  comm.oldest_inflight_realtime_ns = 0;
}

TEST(LostCounter, ALaunchThatTheDriverHoldsIsSeen) {
  SimulatedJob job = RunningJob();
  for (const int rank : {0, 2, 3}) {
    LoseCounter(&job, rank, 5);
    job.Call(kComm, rank, "AllReduce");
    job.Of(kComm, rank).are_unreported_in_group = true;
  }
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotCalled, {"1"}}));
}

TEST(LostCounter, NothingIsSaidWhereItMayHaveEnded) {
  SimulatedJob all = LaunchingJob({0, 1, 2, 3});
  for (int rank = 0; rank < 4; ++rank) LoseCounter(&all, rank, 5);
  all.Advance(kHangAfter);
  EXPECT_THAT(NamedNow(all), IsEmpty());
  SimulatedJob root = LaunchingJob({0}, "Broadcast");
  LoseCounter(&root, 0, 1);
  root.Advance(kHangAfter);
  EXPECT_THAT(NamedNow(root), IsEmpty());
}

TEST_F(OnlyWhoOwes, OneBusyGpuBesideIdleOnesMayRunAKernelOfItsOwn) {
  job = RunningJob();
  for (int rank = 0; rank < 4; ++rank) {
    CommunicatorSnapshot& comm = job.Of(kComm, rank);
    comm.captured = true;
    comm.work.state = WorkState::kProven;
    comm.work.moved_realtime_ns = job.now();
    comm.work.gpu_use = rank == 0 ? GpuUse::kBusy : GpuUse::kIdle;
  }
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kUnknown, {}}));
}

// Two GPUs of one process, with a thread for each: rank 3 has not called on either, its process' other
// rank waits.
TEST(Actors, ThreadsOfAProcessAreSeveral) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3, 3}, 0, 1);
  CommunicatorSnapshot& second = job.process(3).communicators[1];
  job.process(3).communicators[0].gpu = "3";
  second.gpu = "4";
  second.launches = 1;
  second.calls.push_back({"AllReduce", 4, "ncclFloat32", false, 1, 0});
  second.last_call_op = "AllReduce";
  second.oldest_inflight_realtime_ns = second.last_launch_realtime_ns = job.now();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Advance(kHangAfter);
  const SnapshotSet set = job.Set();
  const std::vector<JobRoot> roots =
      JudgeJob(set, Diagnosis().Update(set, job.now()), job.now()).roots;
  ASSERT_THAT(roots, SizeIs(1));
  ASSERT_THAT(roots[0].ranks, SizeIs(1));
  EXPECT_EQ(roots[0].ranks[0].rank, 3);
}

// Two threads of one process, each with a rank: one has not called, and the other one waits for it.
TEST(Waits, TwoRanksOfOneProcessAreTwoHosts) {
  for (const char* gpu : {"0", ""}) {
    SimulatedJob job(1);
    job.AddCommunicator(kComm, {0, 0});
    for (int call = 0; call < 20; ++call) {
      job.Launch(kComm, 0, "AllReduce");
      job.Complete(kComm, 0);
    }
    std::vector<CommunicatorSnapshot>& ranks = job.process(0).communicators;
    ranks[1] = ranks[0];
    ranks[1].rank = 1;
    for (CommunicatorSnapshot& each : ranks) each.gpu = gpu;
    job.Launch(kComm, 0, "AllReduce");
    EXPECT_THAT(ExpectHang(&job, HangVerdict::kRankNotCalled, {1}).waiting, ElementsAre(0));
  }
}

// Rank 2's GPU does not end a call of a communicator of its own, and the others wait behind it.
TEST(Waits, AGpuInACommunicatorWithoutOtherRanksIsNamed) {
  SimulatedJob job = RunningJob();
  job.AddCommunicator(kOther, {2});
  job.Launch(kOther, 0, "AllReduce");
  job.Of(kOther, 0).oldest_launch = OldestLaunch::kBegun;
  job.Advance(kMs);
  for (const int rank : {0, 1, 2, 3}) {
    job.Launch(kComm, rank, "AllReduce");
    job.Of(kComm, rank).oldest_launch = rank == 2 ? OldestLaunch::kNotBegun : OldestLaunch::kBegun;
  }
  ExpectHang(&job, HangVerdict::kNoProgress, {0}, kOther);
  ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {2});
}

// The rank's call there is behind the one in which it waits with the others.
TEST(Waits, AGpuInACommunicatorWithoutOtherRanksIsNotNamedForWorkBeforeIt) {
  SimulatedJob job = RunningJob();
  job.AddCommunicator(kOther, {2});
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Advance(kMs);
  job.Launch(kOther, 0, "AllReduce");
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
  ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {0}, kOther);
}

// One GPU is behind a kernel, and rank 1, which waits for that outside of NCCL, has not called.
TEST(GpuBeforeHost, OneKernelWaitsForNobody) {
  SimulatedJob job = RunningJob();
  job.AddCommunicator(kOther, {0, 2, 3});
  for (const int rank : {0, 1, 2}) job.Launch(kOther, rank, "AllGather");
  SetBegun(&job, kOther, {kNotBegun, kBegun, kBegun});
  job.Advance(kMs);
  LaunchOn(&job, {0, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kNotBegun, OldestLaunch::kUnknown, kNotBegun, kNotBegun});
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotBegun, {"0"}}));
}

// Nobody waits for that GPU in NCCL. It has been behind its kernel for longer than ranks 2 and 3 wait.
TEST(GpuBeforeHost, WhatAHostMayWaitForOutsideOfNccl) {
  SimulatedJob job = RunningJob();
  job.AddCommunicator(kOther, {0, 1});
  job.Launch(kOther, 0, "AllReduce");
  job.Of(kOther, 0).oldest_launch = kNotBegun;
  LaunchOn(&job, {2, 3}, "AllReduce");
  SetBegun(&job, kComm, {OldestLaunch::kUnknown, OldestLaunch::kUnknown, kBegun, kBegun});
  EXPECT_THAT(NamedLater(&job), ElementsAre(Named{HangVerdict::kRankNotBegun, {"0"}}));
}

}  // namespace
}  // namespace nccl_pulse
