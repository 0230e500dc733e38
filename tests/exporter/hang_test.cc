#include "exporter/hang.h"

#include <set>

#include "exporter/diagnosis.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/simulated_job.h"

namespace nccl_pulse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kComm = 0xc0;
constexpr int64_t kHangAfter = 10 * kSecond;
const std::vector<int64_t> kTogether(4, 0);

// What is said of communicator `id`.
std::optional<Hang> HangOf(const SimulatedJob& job, uint64_t id = kComm) {
  return [&](const DiagnosisResult& result) -> std::optional<Hang> {
    for (const CommunicatorDiagnosis& each : result) {
      if (each.comm_id == id) return each.hang;
    }
    return std::nullopt;
  }(Diagnosis().Update(job.Set(), job.now()));
}

// Four ranks after some steps.
SimulatedJob RunningJob(int nranks = 0, int nnodes = 1) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3}, nranks, nnodes);
  for (int i = 0; i < 20; ++i) {
    job.Collective(kComm, "AllReduce", kTogether, kMs);
    job.Collective(kComm, "AllGather", kTogether, kMs);
  }
  return job;
}

void LaunchOn(SimulatedJob* job, const std::set<int>& ranks, const std::string& op,
              int size_class = 4) {
  for (const int rank : ranks) job->Launch(kComm, rank, op, size_class);
}

TEST(Hang, NoneWhileNothingIsInFlight) {
  SimulatedJob job = RunningJob();
  job.Advance(100 * kSecond);
  EXPECT_EQ(HangOf(job), std::nullopt);
}

TEST(Hang, NamesTheRankThatHasNotCalled) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  const int64_t launched = job.now();
  job.Advance(kHangAfter - 1);
  EXPECT_EQ(HangOf(job), std::nullopt);
  job.Advance(1);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(hang->suspects, ElementsAre(3));
  EXPECT_THAT(hang->waiting, ElementsAre(0, 1, 2));
  EXPECT_EQ(hang->op, "AllReduce");
  EXPECT_EQ(hang->since_realtime_ns, launched);
  EXPECT_EQ(hang->text,
            "Rank 3 (pid 103, GPU 3) has not called AllReduce (up to 1MiB), and has nothing in "
            "flight here. Ranks 0, 1 and 2 wait in AllReduce.");
}

TEST(Hang, SeveralThatHaveNotCalledAndSeveralCalls) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 2}, "AllReduce");
  LaunchOn(&job, {0, 2}, "AllGather");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(hang->suspects, ElementsAre(1, 3));
  EXPECT_THAT(hang->text, HasSubstr("AllGather (up to 1MiB) and AllReduce (up to 1MiB)"));
}

TEST(Hang, NoneWhileABacklogProgresses) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  job.Advance(60 * kSecond);
  // The oldest that is known to be in flight is old, but one of before it has just completed.
  for (int rank = 0; rank < 4; ++rank) {
    job.Of(kComm, rank).last_completion_realtime_ns = job.now() - kSecond;
  }
  EXPECT_EQ(HangOf(job), std::nullopt);
}

TEST(Hang, DifferentOperationsAreNamedOnBothSides) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  LaunchOn(&job, {2}, "Broadcast");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kMismatched);
  EXPECT_EQ(hang->op, "AllReduce,Broadcast");
  EXPECT_THAT(hang->text, HasSubstr("rank 0 (pid 100, GPU 0), rank 1 (pid 101, GPU 1) and rank 3 "
                                    "(pid 103, GPU 3) have called AllReduce; rank 2 (pid 102, GPU "
                                    "2) has called Broadcast"));
}

TEST(Hang, DifferentSizes) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce", 4);
  LaunchOn(&job, {3}, "AllReduce", 6);
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kMismatched);
  EXPECT_THAT(hang->text, HasSubstr("AllReduce (up to 16MiB)"));
  EXPECT_THAT(hang->text, HasSubstr("AllReduce (up to 1MiB)"));
}

TEST(Hang, TheSameCallsInAnotherOrder) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  LaunchOn(&job, {0, 1, 2, 3}, "AllGather");
  LaunchOn(&job, {2}, "AllReduce");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kMismatched);
  EXPECT_EQ(hang->op, "AllGather,AllReduce");
  EXPECT_THAT(hang->text, HasSubstr("not in the same order: rank 0 (pid 100, GPU 0), rank 1 (pid "
                                    "101, GPU 1) and rank 3 (pid 103, GPU 3) have called AllGather "
                                    "(up to 1MiB) last; rank 2 (pid 102, GPU 2) has called "
                                    "AllReduce (up to 1MiB) last."));
}

TEST(Hang, AllHaveLaunched) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllGather");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kNoProgress);
  EXPECT_THAT(hang->suspects, IsEmpty());
  EXPECT_EQ(hang->op, "AllGather");
  EXPECT_THAT(hang->text, Not(HasSubstr("another node")));
}

TEST(Hang, AllHaveLaunchedButOneHostIsAhead) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllGather");
  LaunchOn(&job, {0, 1}, "AllReduce");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kNoProgress);
}

TEST(Hang, AnotherNodeIsNotBlamedAndNotExcluded) {
  SimulatedJob job = RunningJob(8, 2);
  LaunchOn(&job, {0, 1, 2, 3}, "AllGather");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kNoProgress);
  EXPECT_THAT(hang->suspects, IsEmpty());
  EXPECT_THAT(hang->text, HasSubstr("another node"));
}

TEST(Hang, RankOfThisNodeThatWasNeverSeen) {
  SimulatedJob job = RunningJob(6, 1);
  LaunchOn(&job, {0, 1, 2, 3}, "AllGather");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotSeen);
  EXPECT_THAT(hang->suspects, ElementsAre(4, 5));
}

TEST(Hang, ProcessGone) {
  for (const bool agent : {true, false}) {
    SimulatedJob job = RunningJob();
    LaunchOn(&job, {0, 1, 3}, "AllReduce");
    job.process(2).end = ProcessEnd::kLost;
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
    EXPECT_THAT(result[0].hang->text, HasSubstr("rank 2 (pid 102, GPU 2) was killed or crashed"));
  }
}

TEST(Hang, ProcessGoneAndNobodyWaits) {
  SimulatedJob job = RunningJob();
  job.process(2).end = ProcessEnd::kLost;
  job.Advance(kHangAfter);
  EXPECT_EQ(HangOf(job), std::nullopt);
}

TEST(Hang, ProcessStopped) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  const int64_t stopped = job.now();
  job.Advance(kHangAfter);
  job.process(2).last_poll_realtime_ns = stopped;
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kProcessStopped);
  EXPECT_THAT(hang->suspects, ElementsAre(2));
  EXPECT_THAT(hang->waiting, ElementsAre(0, 1, 3));
}

TEST(Hang, WhoIsStoppedButHasCalledIsNotToBlame) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  const int64_t stopped = job.now();
  job.Advance(kHangAfter);
  job.process(2).last_poll_realtime_ns = stopped;
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(hang->suspects, ElementsAre(3));
  EXPECT_THAT(hang->text, HasSubstr("Rank 2 (pid 102, GPU 2) does not run."));
}

TEST(Hang, AProcessGoneAndARankThatHasNotCalled) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.process(2).end = ProcessEnd::kLost;
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kProcessGone);
  EXPECT_EQ(hang->text,
            "The process of rank 2 (pid 102, GPU 2) was killed or crashed. Ranks 0 and 1 wait in "
            "AllReduce. Rank 3 (pid 103, GPU 3) has not called AllReduce (up to 1MiB) either.");
}

TEST(Hang, EndedItsCommunicator) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Of(kComm, 3).finalized = true;
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(hang->suspects, ElementsAre(3));
  EXPECT_THAT(hang->text, HasSubstr("has ended this communicator"));
}

TEST(Hang, GraphsAreUnknownAndNotGuessed) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).captured = true;
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kUnknown);
  EXPECT_THAT(hang->suspects, IsEmpty());
}

TEST(Hang, WithoutCompletionsNothingIsSaid) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).has_heartbeat = false;
  job.Advance(kHangAfter);
  EXPECT_EQ(HangOf(job), std::nullopt);
}

TEST(Hang, WithProxyOperationsWhoIsIdleIsUnknown) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  for (int rank = 0; rank < 4; ++rank) {
    CommunicatorSnapshot& communicator = job.Of(kComm, rank);
    communicator.has_heartbeat = false;
    communicator.operations_source = CompletionSource::kProxy;
    communicator.oldest_operation_realtime_ns = communicator.oldest_inflight_realtime_ns;
  }
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kUnknown);
  EXPECT_THAT(hang->text, HasSubstr("rank 3 (pid 103, GPU 3) has called fewer operations"));
}

TEST(Hang, OverflowedCountsAreUnknown) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Of(kComm, 1).overflowed_operations = 1;
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job));
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kUnknown);
}

TEST(Hang, CalledButNotLaunched) {
  SimulatedJob job = RunningJob();
  job.Launch(kComm, 3, "AllReduce");
  CommunicatorSnapshot& inside = job.Of(kComm, 3);
  --inside.launches;
  inside.oldest_inflight_realtime_ns = 0;
  job.Advance(kMs);
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotLaunched);
  EXPECT_THAT(hang->suspects, ElementsAre(3));
}

TEST(Hang, CountsThatStillMoveAreNotCalledDifferent) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  LaunchOn(&job, {2}, "Broadcast");
  job.Advance(kHangAfter);
  for (int rank = 0; rank < 4; ++rank) {
    job.Of(kComm, rank).last_launch_realtime_ns = job.now() - kMs;
  }
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kUnknown);
}

// ---- launched, but not begun --------------------------------------------------------------------

constexpr OldestLaunch kBegun = OldestLaunch::kBegun;
constexpr OldestLaunch kNotBegun = OldestLaunch::kNotBegun;

void SetBegun(SimulatedJob* job, uint64_t id, const std::vector<OldestLaunch>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    job->Of(id, static_cast<int>(i)).oldest_launch = ranks[i];
  }
}

TEST(Hang, NamesTheRankWhoseGpuHasNotBegun) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, OldestLaunch::kUnknown});
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotBegun);
  EXPECT_THAT(hang->suspects, ElementsAre(1));
  EXPECT_THAT(hang->waiting, ElementsAre(0, 2, 3));
  EXPECT_EQ(hang->op, "AllReduce");
  EXPECT_EQ(hang->text,
            "Rank 1 (pid 101, GPU 1) has launched AllReduce (up to 1MiB), but its GPU has not "
            "begun it: work before it on the stream has not ended. Ranks 0, 2 and 3 wait in "
            "AllReduce.");
}

TEST(Hang, SeveralGpusHaveNotBegun) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  LaunchOn(&job, {0, 1}, "AllGather");  // their hosts are ahead
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kNotBegun});
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotBegun);
  EXPECT_THAT(hang->suspects, ElementsAre(1, 3));
  EXPECT_EQ(hang->text,
            "Rank 1 (pid 101, GPU 1) and rank 3 (pid 103, GPU 3) have launched what the others "
            "wait in, but their GPUs have not begun it: work before it on the streams has not "
            "ended. Ranks 0 and 2 wait.");
}

// Of a communicator over nodes, or of which a rank was never seen, too.
TEST(Hang, WhoHasNotBegunIsNamedBesideRanksThatAreNotHere) {
  for (const int nnodes : {1, 2}) {
    SimulatedJob job = RunningJob(8, nnodes);
    LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
    SetBegun(&job, kComm, {kBegun, kBegun, kNotBegun, kBegun});
    job.Advance(kHangAfter);
    ASSERT_TRUE(HangOf(job));
    EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kRankNotBegun);
    EXPECT_THAT(HangOf(job)->suspects, ElementsAre(2));
  }
}

TEST(Hang, NoGpuHasBegun) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kNoProgress);
  EXPECT_THAT(hang->suspects, IsEmpty());
  EXPECT_THAT(hang->text, HasSubstr("No GPU here has begun it: work before it on the streams"));
}

// Nobody is known to wait in it.
TEST(Hang, OneGpuHasNotBegunAndOfOthersNothingIsKnown) {
  SimulatedJob job = RunningJob(8, 2);
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {OldestLaunch::kUnknown, kNotBegun});
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kNoProgress);
  EXPECT_THAT(hang->suspects, IsEmpty());
  EXPECT_THAT(hang->text, HasSubstr("Compare with the other nodes. The GPU of rank 1 (pid 101, GPU "
                                    "1) has not begun it: work before it on the stream has not "
                                    "ended."));
}

// It has done what the others wait in: an operation that a rank may leave before the others.
TEST(Hang, WhoIsAheadIsNotNamed) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "Broadcast");
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  ++job.Of(kComm, 0).launches_completed;
  SetBegun(&job, kComm, {kNotBegun, kBegun, kBegun, kBegun});
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job));
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kNoProgress);
  // The other way round it is.
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  ASSERT_TRUE(HangOf(job));
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kRankNotBegun);
  EXPECT_THAT(HangOf(job)->suspects, ElementsAre(1));
}

TEST(Hang, LaunchesThatDoNotCorrespondAreNotCompared) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  // It has put two of its calls into one launch.
  --job.Of(kComm, 1).launches;
  --job.Of(kComm, 1).launches_completed;
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job));
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kNoProgress);
}

TEST(Hang, WithSendAndRecvLaunchesAreNotCompared) {
  SimulatedJob job = RunningJob();
  for (int rank = 0; rank < 4; ++rank) {
    job.Launch(kComm, rank, rank % 2 == 0 ? "Send" : "Recv");
    job.Complete(kComm, rank);
  }
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job));
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kNoProgress);
}

// What is known of launches that have completed since says nothing.
TEST(Hang, IdleRanksHaveNothingToBegin) {
  SimulatedJob job = RunningJob();
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  job.Advance(kHangAfter);
  EXPECT_EQ(HangOf(job), std::nullopt);
}

// ---- Send and Recv ------------------------------------------------------------------------------

TEST(Hang, SendAndRecvBlameNobody) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  job.Launch(kComm, 1, "Recv");
  job.Launch(kComm, 2, "Recv");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kPointToPoint);
  EXPECT_THAT(hang->suspects, IsEmpty());
  EXPECT_THAT(hang->text, HasSubstr("Ranks 1 and 2 wait in Recv. For whom is not known"));
  EXPECT_THAT(hang->text, HasSubstr("Nothing in flight here: rank 0"));
}

TEST(Hang, OfTwoRanksTheOtherIsThePeer) {
  SimulatedJob job(2);
  job.AddCommunicator(kComm, {0, 1});
  job.Launch(kComm, 0, "Recv");
  job.Advance(kHangAfter);
  const std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(hang->suspects, ElementsAre(1));
  EXPECT_THAT(hang->text, HasSubstr("has not called Send"));
}

TEST(Hang, OwedCollectiveBehindSendsIsNamedOnlyIfNobodyElseIsLeft) {
  SimulatedJob job = RunningJob();
  for (const int rank : {0, 1, 2}) {
    job.Launch(kComm, rank, "Send");
    job.Launch(kComm, rank, "AllReduce");
  }
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job));
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(HangOf(job)->suspects, ElementsAre(3));
  job.Complete(kComm, 2);
  ASSERT_TRUE(HangOf(job));
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kUnknown);
}

// A pipeline whose stages differ in their calls by right, and wait for each other.
TEST(Hang, PipelineThatWorksIsNoHang) {
  SimulatedJob job(4);
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

// ---- several communicators ----------------------------------------------------------------------

TEST(Hang, WhoWaitsElsewhereIsNotTheCulprit) {
  // Tensor parallel {0, 1} and {2, 3}, data parallel {1, 3}. Process 3 does not come.
  SimulatedJob job(4);
  constexpr uint64_t kTensor = 1;
  constexpr uint64_t kTensor2 = 2;
  constexpr uint64_t kData = 3;
  job.AddCommunicator(kTensor, {0, 1});
  job.AddCommunicator(kTensor2, {2, 3});
  job.AddCommunicator(kData, {1, 3});
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kTensor, 0, "AllReduce");
  job.Launch(kTensor2, 0, "AllReduce");
  job.Advance(kHangAfter);
  const std::optional<Hang> data = HangOf(job, kData);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(data->suspects, ElementsAre(1));  // process 3
  const std::optional<Hang> tensor = HangOf(job, kTensor);
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->verdict, HangVerdict::kBlockedElsewhere);
  EXPECT_THAT(tensor->text, HasSubstr("communicator 0000000000000003"));
  const std::optional<Hang> tensor2 = HangOf(job, kTensor2);
  ASSERT_TRUE(tensor2);
  EXPECT_EQ(tensor2->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(tensor2->suspects, ElementsAre(1));  // process 3, too
}

// Two communicators, called in another order; one wait is younger, and not yet a hang.
TEST(Hang, TwoThatWaitForEachOther) {
  SimulatedJob job(2);
  constexpr uint64_t kOne = 1;
  constexpr uint64_t kOther = 2;
  job.AddCommunicator(kOne, {0, 1});
  job.AddCommunicator(kOther, {0, 1});
  job.Launch(kOne, 0, "AllReduce");
  job.Advance(kSecond);
  job.Launch(kOther, 1, "AllReduce");
  job.Advance(kHangAfter - kSecond);
  const std::optional<Hang> one = HangOf(job, kOne);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->verdict, HangVerdict::kBlockedElsewhere);
  EXPECT_THAT(one->suspects, ElementsAre(1));
  EXPECT_THAT(one->text, HasSubstr("communicator 0000000000000002"));
  EXPECT_EQ(HangOf(job, kOther), std::nullopt);
  job.Advance(kSecond);
  const std::optional<Hang> other = HangOf(job, kOther);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->verdict, HangVerdict::kBlockedElsewhere);
  EXPECT_THAT(other->suspects, ElementsAre(0));
}

// Rank 1's GPU is stuck in another communicator, whose own rank has not called, before it comes to
// this one.
class NotBegunBehindAnother : public testing::Test {
 protected:
  static constexpr uint64_t kOther = 1;

  NotBegunBehindAnother() : job_(4) {
    job_.AddCommunicator(kOther, {1, 3});
    job_.AddCommunicator(kComm, {0, 1, 2});
  }
  void HangBehind(OldestLaunch other, bool other_first = true) {
    if (other_first) job_.Launch(kOther, 0, "AllGather");
    job_.Advance(kMs);
    LaunchOn(&job_, {0, 1, 2}, "AllReduce");
    job_.Advance(kMs);
    if (!other_first) job_.Launch(kOther, 0, "AllGather");
    SetBegun(&job_, kComm, {kBegun, kNotBegun, kBegun});
    SetBegun(&job_, kOther, {other});
    job_.Advance(kHangAfter);
  }

  SimulatedJob job_;
};

TEST_F(NotBegunBehindAnother, IsBlockedThere) {
  HangBehind(kBegun);
  for (const OldestLaunch other : {kBegun, OldestLaunch::kUnknown}) {
    SetBegun(&job_, kOther, {other});
    const auto hang = HangOf(job_);
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->verdict, HangVerdict::kBlockedElsewhere);
    EXPECT_THAT(hang->suspects, ElementsAre(1));
    EXPECT_THAT(hang->text, HasSubstr("waits in communicator 0000000000000001 meanwhile"));
    ASSERT_TRUE(HangOf(job_, kOther));
    EXPECT_EQ(HangOf(job_, kOther)->verdict, HangVerdict::kRankNotCalled);
  }
}

// It works on: no hang there, and none of its making here.
TEST_F(NotBegunBehindAnother, IsBusyThere) {
  HangBehind(kBegun);
  job_.Of(kOther, 0).last_completion_realtime_ns = job_.now();
  EXPECT_EQ(HangOf(job_, kOther), std::nullopt);
  ASSERT_TRUE(HangOf(job_));
  EXPECT_EQ(HangOf(job_)->verdict, HangVerdict::kBlockedElsewhere);
}

TEST_F(NotBegunBehindAnother, BothBehindTheSame) {
  HangBehind(kNotBegun);
  ASSERT_TRUE(HangOf(job_));
  EXPECT_EQ(HangOf(job_)->verdict, HangVerdict::kRankNotBegun);
  EXPECT_THAT(HangOf(job_)->suspects, ElementsAre(1));
}

TEST_F(NotBegunBehindAnother, WhatWasLaunchedLaterHoldsNothingUp) {
  HangBehind(kBegun, false);
  ASSERT_TRUE(HangOf(job_));
  EXPECT_EQ(HangOf(job_)->verdict, HangVerdict::kRankNotBegun);
}

TEST_F(NotBegunBehindAnother, AnotherGpuHoldsNothingUp) {
  job_.Of(kOther, 0).gpu = "7";
  HangBehind(kBegun);
  ASSERT_TRUE(HangOf(job_));
  EXPECT_EQ(HangOf(job_)->verdict, HangVerdict::kRankNotBegun);
}

// A replay may stand before it, and nobody knows.
TEST_F(NotBegunBehindAnother, BehindAGraphIsUnknown) {
  job_.Of(kOther, 0).captured = true;
  LaunchOn(&job_, {0, 1, 2}, "AllReduce");
  SetBegun(&job_, kComm, {kBegun, kNotBegun, kBegun});
  job_.Advance(kHangAfter);
  const auto hang = HangOf(job_);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kUnknown);
  EXPECT_THAT(hang->suspects, IsEmpty());
  EXPECT_THAT(hang->waiting, ElementsAre(0, 1, 2));
  EXPECT_THAT(hang->text, HasSubstr("communicator 0000000000000001 meanwhile cannot be seen"));
}

// Two communicators on one stream, in another order, both enqueued.
TEST(Hang, TwoThatStandBeforeEachOther) {
  SimulatedJob job(2);
  constexpr uint64_t kOne = 1;
  constexpr uint64_t kOther = 2;
  job.AddCommunicator(kOne, {0, 1});
  job.AddCommunicator(kOther, {0, 1});
  job.Launch(kOne, 0, "AllReduce");
  job.Launch(kOther, 1, "AllReduce");
  job.Advance(kMs);
  job.Launch(kOther, 0, "AllReduce");
  job.Launch(kOne, 1, "AllReduce");
  SetBegun(&job, kOne, {kBegun, kNotBegun});
  SetBegun(&job, kOther, {kNotBegun, kBegun});
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job, kOne));
  EXPECT_EQ(HangOf(job, kOne)->verdict, HangVerdict::kBlockedElsewhere);
  EXPECT_THAT(HangOf(job, kOne)->suspects, ElementsAre(1));
  ASSERT_TRUE(HangOf(job, kOther));
  EXPECT_EQ(HangOf(job, kOther)->verdict, HangVerdict::kBlockedElsewhere);
  EXPECT_THAT(HangOf(job, kOther)->suspects, ElementsAre(0));
}

TEST(Hang, EveryVerdictHasAName) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(HangVerdict::kUnknown); ++i) {
    names.insert(HangVerdictName(static_cast<HangVerdict>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(HangVerdict::kUnknown) + 1);
}

}  // namespace
}  // namespace nccl_pulse
