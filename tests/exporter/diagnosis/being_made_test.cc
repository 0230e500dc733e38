// A communicator that some of its ranks make while others do not come.
#include "exporter/diagnosis/job_verdict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kMade = 0xd0;

// Four ranks that have worked; all but the last one make another communicator of all four.
SimulatedJob MakingJob(int nnodes = 1) {
  SimulatedJob job = RunningJob();
  job.Advance(kSecond);
  job.AddCommunicator(kMade, {0, 1, 2}, 4, nnodes);
  for (int rank = 0; rank < 3; ++rank) job.Of(kMade, rank).init_realtime_ns = job.now();
  return job;
}

TEST(BeingMade, NamesTheRankThatDoesNotCome) {
  SimulatedJob job = MakingJob();
  job.Advance(kHangAfter - 1);
  EXPECT_EQ(HangOf(job, kMade), std::nullopt);
  job.Advance(1);
  const Hang hang = ExpectHangNow(job, HangVerdict::kRankNotSeen, {3}, kMade);
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 2));
  EXPECT_EQ(hang.text,
            "Ranks 0, 1 and 2 are creating this communicator, and their processes have called "
            "nothing since. Rank 3 (pid 103, GPU 3) has not joined. (The ranks are those of "
            "communicator 00000000000000c0.)");
  const SnapshotSet set = job.Set();
  const JobVerdict verdict = JudgeJob(set, Diagnosis().Update(set, job.now()), job.now());
  ASSERT_THAT(verdict.roots, SizeIs(1));
  EXPECT_EQ(verdict.roots[0].situation, Situation::kBeingMade);
  ASSERT_THAT(verdict.roots[0].ranks, SizeIs(1));
  EXPECT_EQ(verdict.roots[0].ranks[0].process->pid, 103);
}

// Rank 3 was killed. Ranks 0 and 1 make a communicator without it, and rank 2 still waits in the old
// one.
TEST(BeingMade, BesideARankThatWasLeftBehind) {
  SimulatedJob job = LaunchingJob({0, 1, 2});
  job.process(3).end = ProcessEnd::kLost;
  job.process(3).end_realtime_ns = job.now();
  for (const int rank : {0, 1}) {
    job.Complete(kComm, rank);
    job.Of(kComm, rank).finalized = true;
  }
  job.Advance(kSecond);
  job.AddCommunicator(kMade, {0, 1}, 3);
  for (const int rank : {0, 1}) job.Of(kMade, rank).init_realtime_ns = job.now();
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotSeen, {2}, kMade);
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1));
  EXPECT_THAT(hang.text, HasSubstr("Rank 2 has not joined, or another endpoint serves it."));
  EXPECT_EQ(HangNow(job).situation, Situation::kLeftBehind);
}

// Several processes might be rank 3.
TEST(BeingMade, NamesTheNumberAloneWhereNothingTellsItsProcess) {
  SimulatedJob job(4);
  job.AddCommunicator(kMade, {0, 1, 2}, 4);
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotSeen, {3}, kMade);
  EXPECT_THAT(hang.text, HasSubstr("Rank 3 has not joined, or another endpoint serves it."));
}

TEST(BeingMade, NotWhileTheOtherRanksMayBeOnAnotherNode) {
  SimulatedJob job = MakingJob(2);
  job.Advance(kHangAfter);
  EXPECT_EQ(HangOf(job, kMade), std::nullopt);
  SnapshotSet all = job.Set();
  all.is_of_all_nodes = true;
  const auto suspects_of = [&job](const SnapshotSet& set) {
    for (const CommunicatorDiagnosis& each : Diagnosis().Update(set, job.now())) {
      if (each.comm_id == kMade && each.hang) return each.hang->suspects;
    }
    return std::vector<int32_t>();
  };
  EXPECT_THAT(suspects_of(all), ElementsAre(3));
  // The endpoint of that process has not answered; nor has that of rank 2.
  all.processes.pop_back();
  EXPECT_THAT(suspects_of(all), IsEmpty());
  all = job.Set();
  all.is_of_all_nodes = true;
  all.processes.erase(all.processes.begin() + 2);
  EXPECT_THAT(suspects_of(all), ElementsAre(3));
}

// It is not used: those that have come to it are not in its making any longer.
TEST(BeingMade, NotIfOneOfItsProcessesGoesOn) {
  SimulatedJob job = MakingJob();
  job.Advance(kSecond);
  job.Collective(kComm, "AllReduce", kTogether, kMs);
  job.Advance(kHangAfter);
  EXPECT_EQ(HangOf(job, kMade), std::nullopt);
  SimulatedJob another = MakingJob();
  another.AddCommunicator(kMade + 1, {0});
  another.Of(kMade + 1, 0).init_realtime_ns = another.now() + 1;
  another.Advance(kHangAfter);
  EXPECT_EQ(HangOf(another, kMade), std::nullopt);
}

TEST(BeingMade, NotIfItsCallsMayBeMissing) {
  SimulatedJob job = MakingJob();
  job.Of(kMade, 1).event_mask = 0xf0a;
  job.process(1).event_mask_changes = 2;
  job.Advance(kHangAfter);
  EXPECT_EQ(HangOf(job, kMade), std::nullopt);
}

}  // namespace
}  // namespace nccl_pulse
