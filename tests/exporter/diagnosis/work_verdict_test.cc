// Hangs in CUDA graphs of any length, by NCCL's own counters of finished work and what NVML says of
// the GPUs: who is named, and where nothing may be said.
#include "exporter/diagnosis/health.h"
#include "gmock/gmock.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

void Prove(SimulatedJob* job, int rank) {
  CommunicatorSnapshot& comm = job->Of(kComm, rank);
  comm.captured = true;
  comm.work.state = WorkState::kProven;
  comm.work.moved_realtime_ns = job->now();
}

// Four ranks whose graphs were replayed until now. NVML says this of their GPUs.
SimulatedJob GraphJob(const std::vector<GpuUse>& uses, int nranks = 0) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3}, nranks);
  job.Collective(kComm, "AllReduce", kTogether, kMs);
  for (int rank = 0; rank < 4; ++rank) {
    Prove(&job, rank);
    job.Of(kComm, rank).work.gpu_use = uses[rank];
  }
  return job;
}
constexpr GpuUse kIdle = GpuUse::kIdle, kBusy = GpuUse::kBusy;

ActivityState StateOf(const SimulatedJob& job, int rank = 0) {
  const SnapshotSet set = job.Set();
  return ActivityOf(set.processes[rank], set.processes[rank].communicators[0], job.now()).state;
}

struct WorkVerdict : testing::Test {
  SimulatedJob job = GraphJob({kBusy, kBusy, kIdle, kBusy});
};

TEST_F(WorkVerdict, ReplayingThenQuiet) {
  job = GraphJob(std::vector<GpuUse>(4, GpuUse::kUnknown));
  job.Advance(kSecond);
  EXPECT_EQ(StateOf(job), ActivityState::kReplaying);
  job.Advance(2 * kSecond);
  EXPECT_EQ(StateOf(job), ActivityState::kQuiet);
  EXPECT_EQ(HealthOf(job.Set(), Diagnosis().Update(job.Set(), job.now()), job.now()).unknown_ranks,
            0u);
  job.Of(kComm, 0).work.state = WorkState::kRefuted;
  EXPECT_EQ(StateOf(job), ActivityState::kUnknown);
}

TEST_F(WorkVerdict, RankWhoseGpuRunsNothingIsNamed) {
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kRankNotBegun, {2});
  EXPECT_EQ(hang.waiting, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_THAT(hang.text, HasSubstr("The GPU of rank 2 (pid 102, GPU 2) runs nothing, while"));
  EXPECT_THAT(hang.text, HasSubstr("wait in a CUDA graph."));
}

// Nothing in the block of the counter moves, whichever of its words that is.
TEST_F(WorkVerdict, RankIsNamedWhileTheCountersAreBeingProven) {
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).work.state = WorkState::kCalibrating;
  SimulatedJob later = job;
  later.Advance(kSecond);
  EXPECT_EQ(StateOf(later), ActivityState::kReplaying);
  later.Advance(2 * kSecond);
  EXPECT_EQ(StateOf(later), ActivityState::kQuiet);
  ExpectHangInTime(&job, HangVerdict::kRankNotBegun, {2});
}

// A host stops before anything has been proven: the driver does not give the counter away while a
// replay waits, or a counter was refuted, or it isn't known which block it is.
TEST_F(WorkVerdict, RankWhoseGpuRunsNothingIsNamedWithoutACounter) {
  for (const WorkState state : {WorkState::kUnknown, WorkState::kLocated, WorkState::kCalibrating,
                                WorkState::kRefuted, WorkState::kStuck}) {
    for (const int without : {0, 2}) {
      if (without == 2 && state == WorkState::kStuck) continue;  // of a GPU that runs nothing?
      job = GraphJob({kBusy, kBusy, kIdle, kBusy});
      job.Of(kComm, without).work.state = state;
      job.Of(kComm, without).work.moved_realtime_ns = 0;
      ExpectHangInTime(&job, HangVerdict::kRankNotBegun, {2});
    }
    job = GraphJob({kBusy, kBusy, kIdle, kBusy});
    for (int rank = 0; rank < 4; ++rank) {
      job.Of(kComm, rank).work.state = state == WorkState::kStuck ? WorkState::kRefuted : state;
      job.Of(kComm, rank).work.moved_realtime_ns = 0;
    }
    job.Advance(60 * kSecond);
    EXPECT_EQ(HangOf(job)->suspects, std::vector<int32_t>{2}) << WorkStateName(state);
  }
}

// How long they stood before is not known.
TEST_F(WorkVerdict, NothingIsSaidOfBusyGpusWhileTheCountersAreBeingProven) {
  job = GraphJob({kBusy, kBusy, kBusy, kBusy});
  job.Of(kComm, 1).work.state = WorkState::kCalibrating;
  ExpectNoHang(&job, 60 * kSecond);
}

TEST_F(WorkVerdict, NobodyIsNamedWhereAllAreBusy) {
  job = GraphJob({kBusy, kBusy, kBusy, kBusy});
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kNoProgress, {});
  EXPECT_THAT(hang.text, HasSubstr("The GPUs of all ranks are busy"));
}

// Computing, say.
TEST_F(WorkVerdict, NothingIsSaidWhereTheyStoodAsLongBefore) {
  job = GraphJob({kBusy, kBusy, kBusy, kBusy});
  job.Of(kComm, 3).work.longest_pause_ns = 30 * kSecond;
  ExpectNoHang(&job, 30 * kSecond);
  job.Advance(1);
  EXPECT_THAT(HangOf(job)->text, HasSubstr("longer than ever before in CUDA graphs (30 s)"));
}

// An engine without requests.
TEST_F(WorkVerdict, QuietForHoursIsNoHang) {
  job = GraphJob({kIdle, kIdle, kIdle, kIdle});
  ExpectNoHang(&job, 7200 * kSecond);
  EXPECT_EQ(StateOf(job), ActivityState::kQuiet);
}

// Whether their GPUs wait in a replay isn't known: that is no all-clear.
TEST_F(WorkVerdict, QuietForLongWithoutNvmlIsNotOk) {
  job = GraphJob(std::vector<GpuUse>(4, GpuUse::kUnknown));
  const auto health = [this] {
    return HealthOf(job.Set(), Diagnosis().Update(job.Set(), job.now()), job.now());
  };
  job.Advance(15 * kSecond);
  EXPECT_EQ(health().status, HealthStatus::kOk);
  job.Advance(15 * kSecond);
  EXPECT_EQ(health().status, HealthStatus::kIncomplete);
  EXPECT_EQ(health().unknown_ranks, 4u);
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).work.gpu_use = kIdle;
  EXPECT_EQ(health().status, HealthStatus::kOk);
}

TEST_F(WorkVerdict, NothingIsConcludedFromWhatIsNotKnown) {
  for (const GpuUse use : {GpuUse::kUnknown, GpuUse::kMixed, GpuUse::kShared}) {
    job = GraphJob({kBusy, use, kIdle, kBusy});
    job.Advance(60 * kSecond);
    EXPECT_EQ(HangOf(job), std::nullopt) << GpuUseName(use);
  }
}

TEST_F(WorkVerdict, ACounterThatMovesContradicts) {
  job.Advance(5 * kSecond);
  job.Of(kComm, 1).work.moved_realtime_ns = job.now();
  ExpectNoHang(&job, 5 * kSecond);
}

// The GPUs may compute, each by itself.
TEST_F(WorkVerdict, ACounterThatIsRefutedSaysNothingOfBusyGpus) {
  job = GraphJob({kBusy, kBusy, kBusy, kBusy});
  job.Of(kComm, 2).work.state = WorkState::kRefuted;
  ExpectNoHang(&job, 60 * kSecond);
}

// Its launching thread waits for room behind the replay, with the driver's lock.
TEST_F(WorkVerdict, ACounterThatCannotBeReadBesideOneThatStands) {
  job.Of(kComm, 0).work.state = WorkState::kStuck;
  ExpectHang(&job, HangVerdict::kRankNotBegun, {2});
  // It was that rank's GPU that ran nothing, or something else ran on it.
  job.Of(kComm, 0).work.gpu_use = kIdle;
  EXPECT_EQ(HangOf(job), std::nullopt);
  job.Of(kComm, 0).work.gpu_use = kBusy;
  // A root leaves a Broadcast before the others come.
  job.Of(kComm, 0).calls.push_back({"Broadcast", 4, "ncclFloat32", true, 1, 0});
  EXPECT_EQ(HangOf(job), std::nullopt);
}

TEST_F(WorkVerdict, AThreadThatStandsInTheDriverIsNoStoppedProcess) {
  const int64_t polled = job.now();
  job.Launch(kComm, 0, "AllReduce");
  job.Advance(kHangAfter + kSecond);
  job.process(0).last_poll_realtime_ns = polled;
  job.process(0).run_state = RunState::kRunning;
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {2});
  job.process(0).run_state = RunState::kStopped;
  ExpectHangNow(job, HangVerdict::kProcessStopped, {0});
}

// A GPU that something else holds, say, while all hosts have launched more than there is room for.
TEST_F(WorkVerdict, NobodyIsNamedWhereCountersCannotBeRead) {
  for (const int unread : {1, 4}) {
    job = GraphJob({kBusy, kBusy, kBusy, kBusy});
    for (int rank = 0; rank < unread; ++rank) {
      job.Of(kComm, rank).work.state = WorkState::kStuck;
      job.Of(kComm, rank).calls.push_back({"Broadcast", 4, "ncclFloat32", true, 1, 0});
    }
    const Hang hang = ExpectHangInTime(&job, HangVerdict::kNoProgress, {});
    EXPECT_THAT(hang.text, HasSubstr("The GPUs of all ranks are busy, and no collective was seen "
                                     "to have finished here since"));
    EXPECT_THAT(hang.text, HasSubstr(unread == 1 ? ". What rank 0 has finished cannot be read: "
                                                 : ". What ranks 0, 1, 2 and 3 have finished "
                                                   "cannot be read: "));
    job.Of(kComm, 1).work.gpu_use = GpuUse::kMixed;
    EXPECT_EQ(HangOf(job), std::nullopt);
  }
}

// A host that runs ahead keeps the lock, too, and so nothing was read before for some time.
TEST_F(WorkVerdict, NothingIsSaidWhereCountersCouldNotBeReadForAsLongBefore) {
  job = GraphJob({kBusy, kBusy, kBusy, kBusy});
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).work.state = WorkState::kStuck;
  job.Of(kComm, 2).work.longest_pause_ns = 30 * kSecond;
  ExpectNoHang(&job, 30 * kSecond);
  job.Advance(1);
  EXPECT_TRUE(HangOf(job));
}

// Neither of its background threads comes back from the driver.
TEST_F(WorkVerdict, ProcessesWhoseThreadsStandInTheDriverAreNotStopped) {
  job = GraphJob({kBusy, kBusy, kBusy, kBusy});
  const int64_t polled = job.now();
  for (int rank = 0; rank < 4; ++rank) job.Launch(kComm, rank, "AllReduce");
  job.Advance(kHangAfter + kSecond);
  for (int rank = 0; rank < 4; ++rank) {
    job.process(rank).last_poll_realtime_ns = polled;
    job.process(rank).run_state = RunState::kRunning;
  }
  EXPECT_EQ(HangOf(job)->verdict, HangVerdict::kNoProgress);
}

// Those that are not here may be busy, too, or hold up the others.
TEST_F(WorkVerdict, AllRanksHaveToBeSeen) {
  job = GraphJob({kBusy, kBusy, kIdle, kBusy}, 8);
  ExpectNoHang(&job, 60 * kSecond);
}

// An eager call stands behind the replay.
TEST_F(WorkVerdict, BesideALaunch) {
  job.Launch(kComm, 0, "AllReduce");
  ExpectHang(&job, HangVerdict::kRankNotBegun, {2});
}

}  // namespace
}  // namespace nccl_pulse
