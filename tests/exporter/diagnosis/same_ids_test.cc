// Several communicators with one id, and numbers that are no ranks.
#include "exporter/diagnosis/facts/same_ids.h"

#include <string>
#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/job_verdict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

// Two jobs of four ranks, whose communicators have one id. The second one's processes come behind
// those of the first, on the same host.
class TwoJobs : public testing::Test {
 protected:
  TwoJobs() : first_(RunningJob()), second_(RunningJob()) {
    for (int i = 0; i < 4; ++i) {
      second_.process(i).pid += 100;
      for (SimulatedJob* job : {&first_, &second_}) {
        job->process(i).hostname = "node";
        job->process(i).start_realtime_ns = kStart - kSecond;
      }
    }
  }

  // One rank of a job does not come. Then the other job's ranks have gone on.
  static void Hang(SimulatedJob* job, int missing) {
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != missing) job->Launch(kComm, rank, "AllReduce");
    }
    job->Advance(kHangAfter);
  }

  SnapshotSet Set() {
    SnapshotSet set = first_.Set();
    for (const ProcessSnapshot& process : second_.Set().processes) set.processes.push_back(process);
    return set;
  }

  DiagnosisResult Diagnose() { return Diagnosis().Update(Set(), first_.now()); }

  SimulatedJob first_, second_;
};

void SetJobId(SimulatedJob* job, const std::string& id) {
  for (int i = 0; i < 4; ++i) job->process(i).job_id = id;
}

TEST_F(TwoJobs, AreToldApartByJobId) {
  SetJobId(&first_, "1");
  SetJobId(&second_, "2");
  Hang(&first_, 2);
  second_.Advance(kHangAfter);
  const DiagnosisResult result = Diagnose();
  ASSERT_THAT(result, SizeIs(2));
  ASSERT_TRUE(result[0].hang);
  EXPECT_THAT(result[0].hang->suspects, ElementsAre(2));
  EXPECT_FALSE(result[1].hang);
}

TEST_F(TwoJobs, AreToldApartByWhenTheyWereMade) {
  for (int rank = 0; rank < 4; ++rank) second_.Of(kComm, rank).init_realtime_ns += 7 * kSecond;
  Hang(&first_, 2);
  Hang(&second_, 1);
  const DiagnosisResult result = Diagnose();
  ASSERT_THAT(result, SizeIs(2));
  EXPECT_THAT(result[0].hang->suspects, ElementsAre(2));
  EXPECT_THAT(result[1].hang->suspects, ElementsAre(1));
  // Each has a root of its own.
  const SnapshotSet set = Set();
  const JobVerdict verdict = JudgeJob(set, Diagnosis().Update(set, first_.now()), first_.now());
  ASSERT_THAT(verdict.roots, SizeIs(2));
  EXPECT_EQ(verdict.roots[0].ranks.front().process->pid, 102);
  EXPECT_EQ(verdict.roots[1].ranks.front().process->pid, 201);
}

TEST_F(TwoJobs, AreToldApartByHost) {
  for (int i = 0; i < 4; ++i) second_.process(i).hostname = "other";
  Hang(&second_, 1);
  first_.Advance(kHangAfter);
  const DiagnosisResult result = Diagnose();
  ASSERT_THAT(result, SizeIs(2));
  EXPECT_FALSE(result[0].hang);
  EXPECT_THAT(result[1].hang->suspects, ElementsAre(1));
}

TEST_F(TwoJobs, AreToldApartByWhenTheyWereStarted) {
  for (int i = 0; i < 4; ++i) second_.process(i).start_realtime_ns -= 3600 * kSecond;
  Hang(&second_, 1);
  first_.Advance(kHangAfter);
  EXPECT_THAT(Diagnose(), SizeIs(2));
}

TEST_F(TwoJobs, AreMixedIfNothingTells) {
  Hang(&second_, 1);
  first_.Advance(kHangAfter);
  const DiagnosisResult result = Diagnose();
  ASSERT_THAT(result, SizeIs(1));
  ASSERT_TRUE(result[0].hang);
  EXPECT_EQ(result[0].hang->verdict, HangVerdict::kUnknown);
  EXPECT_THAT(result[0].hang->suspects, IsEmpty());
  EXPECT_THAT(result[0].hang->text, HasSubstr("several communicators have this ID"));
}

TEST_F(TwoJobs, NoAllClearOverWhatIsMixed) {
  const Health health = HealthOf(Set(), Diagnose(), first_.now());
  EXPECT_EQ(health.status, HealthStatus::kIncomplete);
  EXPECT_THAT(health.notes, ElementsAre(HasSubstr("Several communicators have the id")));
}

// Two kinds of a job's communicators may have one size and one setting.
TEST(SameIds, OfOneProcess) {
  SimulatedJob job(2);
  job.AddCommunicator(kComm, {0, 1});
  SnapshotSet set = job.Set();
  for (ProcessSnapshot& process : set.processes) {
    process.communicators.push_back(process.communicators.front());
    process.communicators.back().init_realtime_ns += 60 * kSecond;
  }
  const SameIds same_ids(set);
  for (const ProcessSnapshot& process : set.processes) {
    EXPECT_EQ(same_ids.NumberOf(process.communicators[0]), 0u);
    EXPECT_EQ(same_ids.NumberOf(process.communicators[1]), 1u);
  }
}

// The job was restarted with one rank less.
TEST(SameIds, RanksOfAnEarlierRunAreNoSuspects) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  for (const bool is_smaller : {true, false}) {
    SnapshotSet set = job.Set();
    ProcessSnapshot earlier = set.processes[3];
    earlier.end = ProcessEnd::kLost;
    earlier.end_realtime_ns = kStart;
    set.ended.push_back(earlier);
    set.processes.pop_back();
    for (ProcessSnapshot& process : set.processes) {
      CommunicatorSnapshot& communicator = process.communicators.front();
      if (is_smaller) communicator.nranks = 3;
      communicator.init_realtime_ns = kStart + 60 * kSecond;
      communicator.calls = {{"AllReduce", 4, "ncclFloat32", false, 1, 0}};
      communicator.last_call_op = "AllReduce";
      communicator.launches = 1;
      communicator.oldest_inflight_realtime_ns = kStart + 61 * kSecond;
      process.last_poll_realtime_ns = kStart + 90 * kSecond;
    }
    const DiagnosisResult result = Diagnosis().Update(set, kStart + 90 * kSecond);
    ASSERT_THAT(result, SizeIs(2));
    ASSERT_TRUE(result[0].hang);
    EXPECT_EQ(result[0].hang->verdict,
              is_smaller ? HangVerdict::kNoProgress : HangVerdict::kRankNotSeen);
    EXPECT_FALSE(result[1].hang);
  }
}

TEST(SharedRanks, ANumberThatAllProcessesOfANodeHaveIsNoRank) {
  SimulatedJob job = RunningJob();
  for (int i = 0; i < 4; ++i) job.process(i).global_rank = i == 3 ? "7" : "1";
  SnapshotSet set = job.Set();
  // Of another job.
  ProcessSnapshot other = set.processes[0];
  other.communicators.front().comm_id = kComm + 1;
  set.processes.push_back(other);
  ForgetSharedRanks(&set);
  std::vector<std::string> ranks;
  for (const ProcessSnapshot& process : set.processes) ranks.push_back(process.global_rank);
  EXPECT_THAT(ranks, ElementsAre("", "", "", "7", "1"));
}

}  // namespace
}  // namespace nccl_pulse
