#include "exporter/diagnosis/health.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

Health Of(const SimulatedJob& job) {
  return HealthOf(job.Set(), Diagnosis().Update(job.Set(), job.now()), job.now());
}

using HealthTest = RunningJobTest;

TEST_F(HealthTest, AllClearOnlyWhereWorkIsSeen) {
  Health health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kOk);
  EXPECT_EQ(health.summary, "No hang and no straggler is suspected.");
  EXPECT_THAT(health.notes, IsEmpty());
  // Nothing tells what is in flight.
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).has_heartbeat = false;
  health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kIncomplete);
  EXPECT_EQ(health.unknown_ranks, 4u);
  EXPECT_EQ(health.blind_communicators, 1u);
  EXPECT_EQ(health.summary, "Cannot tell whether a rank hangs.");
  EXPECT_THAT(health.notes, ElementsAre(HasSubstr("not known for 4 of 4 ranks")));
}

// One rank killed, the other stopped; nothing else is there.
TEST_F(HealthTest, LostAndStoppedAreNoAllClear) {
  const SimulatedJob job = LostAndStoppedJob(kComm);
  const Health health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kIncomplete);
  EXPECT_EQ(health.lost_processes, 1u);
  EXPECT_EQ(health.stopped_processes, 1u);
  EXPECT_THAT(
      health.notes,
      ElementsAre("1 process ended without finalizing: pid 100.",
                  "1 process is not running (stopped, held by a debugger, or paused): pid 101.",
                  HasSubstr("not known for 1 of 1 rank:")));
  EXPECT_EQ(health.summary, "Cannot tell whether a rank hangs.");
}

// _exit(0) after the last collective, or a crash in the middle of one.
TEST_F(HealthTest, LostProcessesOfWhichNothingIsInUse) {
  for (int i = 0; i < 4; ++i) job.process(i).end = ProcessEnd::kLost;
  EXPECT_EQ(Of(job).status, HealthStatus::kUnused);
  EXPECT_THAT(Of(job).notes, ElementsAre("4 processes ended without finalizing: pids 100, 101, "
                                         "102, 103. No rank waits for them in NCCL."));
  job.Launch(kComm, 0, "AllReduce");
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  EXPECT_THAT(Of(job).summary, HasSubstr("4 processes ended without finalizing"));
  job.Complete(kComm, 0);
  for (int i = 0; i < 4; ++i) job.process(i).end = ProcessEnd::kExit;
  EXPECT_EQ(Of(job).status, HealthStatus::kUnused);
  EXPECT_EQ(Of(job).summary, "No communicator is in use.");
}

// The others have gone on without it: they shrank the job, or are its next attempt.
TEST_F(HealthTest, ALostProcessIsMissedWhileARankMayWaitForIt) {
  job.process(3).end = ProcessEnd::kLost;
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
  EXPECT_THAT(Of(job).notes, ElementsAre(HasSubstr("No rank waits for it in NCCL.")));
  job.Launch(kComm, 0, "AllReduce");
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  EXPECT_EQ(Of(job).summary, "No hang is suspected, but 1 process ended without finalizing.");
  for (int rank = 0; rank < 3; ++rank) job.Of(kComm, rank).finalized = true;
  job.AddCommunicator(1, {0, 1, 2});
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
}

// Adds a communicator now, after the others.
void AddLater(SimulatedJob* job, uint64_t id, const std::vector<int>& members, int nranks = 0) {
  job->AddCommunicator(id, members, nranks);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    job->Of(id, static_cast<int>(rank)).init_realtime_ns = job->now();
  }
}

// ncclCommShrink aborts the parent's kernels, and leaves the parent to the application.
SimulatedJob ShrunkJob() {
  SimulatedJob job = LaunchingJob({0, 1, 2});
  End(&job, 3);
  for (int rank = 0; rank < 3; ++rank) job.Complete(kComm, rank);
  job.Advance(kSecond);
  return job;
}

TEST_F(HealthTest, NoRankIsMissedInTheParentOfAShrunkCommunicator) {
  job = ShrunkJob();
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  AddLater(&job, kOther, {0, 1, 2});
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);  // the child has done nothing yet
  job.Collective(kOther, "AllReduce", {0, 0, 0}, kMs);
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
  EXPECT_THAT(Of(job).notes, ElementsAre("1 process ended without finalizing: pid 103. No rank "
                                         "waits for it in NCCL."));
  // It shrinks again.
  End(&job, 1);
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  job.Advance(kSecond);
  AddLater(&job, 1, {0, 2});
  job.Collective(1, "AllReduce", {0, 0}, kMs);
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
}

TEST_F(HealthTest, ALostRankIsMissedWhileARankMayWaitInTheParent) {
  job = ShrunkJob();
  AddLater(&job, kOther, {0, 1, 2});
  job.Collective(kOther, "AllReduce", {0, 0, 0}, kMs);
  const SimulatedJob shrunk = job;
  job.Launch(kComm, 0, "AllReduce");
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  job.Complete(kComm, 0);
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);  // the parent is still called
  job = shrunk;
  job.Call(kComm, 0, "AllReduce");
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  job = shrunk;
  job.Of(kComm, 0).captured = true;
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
}

TEST_F(HealthTest, ALostRankIsMissedUnlessAllOthersContinueInOneCommunicator) {
  const auto status_with = [](const std::vector<int>& members, int nranks) {
    SimulatedJob job = ShrunkJob();
    AddLater(&job, kOther, members, nranks);
    job.Collective(kOther, "AllReduce", std::vector<int64_t>(members.size()), kMs);
    return Of(job).status;
  };
  EXPECT_EQ(status_with({0, 1, 2}, 3), HealthStatus::kOk);
  EXPECT_EQ(status_with({0, 1}, 2), HealthStatus::kIncomplete);
  EXPECT_EQ(status_with({0, 1, 2}, 4), HealthStatus::kIncomplete);
}

// Endpoints forget ended processes after ten minutes.
TEST_F(HealthTest, AForgottenRankIsNotMissedInTheParentOfAShrunkCommunicator) {
  job = RunningJob(5);
  job.Advance(kSecond);
  AddLater(&job, kOther, {0, 1, 2, 3});
  job.Collective(kOther, "AllReduce", kTogether, kMs);
  const Health health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kOk);
  EXPECT_EQ(health.missing_ranks, 0u);
  EXPECT_THAT(health.notes,
              ElementsAre("1 rank of communicator 00000000000000c0 is not seen here. No rank waits "
                          "for it: the others continue in communicator 00000000000000d0."));
  // It may be one of the rejected processes, or on a node that is not seen.
  SnapshotSet set = job.Set();
  set.unread_processes = 1;
  EXPECT_EQ(HealthOf(set, {}, job.now()).missing_ranks, 1u);
  set = job.Set();
  set.is_of_all_nodes = true;
  EXPECT_EQ(HealthOf(set, {}, job.now()).missing_ranks, 0u);
  for (ProcessSnapshot& process : set.processes) process.communicators.front().nnodes = 2;
  EXPECT_EQ(HealthOf(set, {}, job.now()).missing_ranks, 1u);
  // Another communicator of the same ranks, such as for tensor parallelism, is no child.
  job.Collective(kComm, "AllReduce", kTogether, kMs);
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
}

TEST_F(HealthTest, CommunicatorsWithoutRoomAreNoAllClear) {
  job.process(0).unmeasured_communicators = 5;
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  EXPECT_EQ(Of(job).summary, "No hang is suspected, but 5 communicators are not measured.");
  EXPECT_THAT(Of(job).notes,
              ElementsAre("5 communicators are not measured, beyond the limit of pid 100."));
}

TEST_F(HealthTest, AllRanksAreOutsideOfNcclForLongerThanEverBefore) {
  job.Advance(kHangAfter);
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
  job.Advance(60 * kSecond);
  const Health health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kIdle);
  EXPECT_THAT(health.summary, testing::StartsWith("No rank has called NCCL since "));
  EXPECT_NEAR(static_cast<double>(job.now() - health.idle_since_realtime_ns) / 1e9, 70, 1);
  // It has paused for as long before.
  job.Of(kComm, 1).longest_waits = {WaitedBefore("AllReduce", 80 * kSecond)};
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
  job.Of(kComm, 1).longest_waits.clear();
  SimulatedJob ended = job;  // the others may wait for it outside of NCCL
  ended.process(2).end = ProcessEnd::kExit;
  ended.process(2).end_realtime_ns = job.now();
  EXPECT_THAT(Of(ended).summary, HasSubstr(" on average. 1 process ended without finalizing."));
  EXPECT_THAT(Of(ended).notes, ElementsAre("1 process ended without finalizing: pid 102. No rank "
                                           "waits for it in NCCL."));
  ended.Of(kComm, 2).finalized = true;
  EXPECT_THAT(Of(ended).notes, IsEmpty());
  job.Launch(kComm, 0, "AllReduce");
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
}

// A pause between two calls was never longer than the job has run.
TEST_F(HealthTest, AJobIsIdleAfterItsFirstCall) {
  job = SimulatedJob(2);
  job.AddCommunicator(kComm, {0, 1});
  job.Advance(kSecond);
  job.Collective(kComm, "AllReduce", {0, 0}, kMs);
  job.Advance(9 * kSecond);
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
  job.Advance(4 * kSecond);
  EXPECT_EQ(Of(job).status, HealthStatus::kIdle);
}

TEST_F(HealthTest, StragglersThatAreNotComparedAreSaid) {
  job = SimulatedJob(2);
  job.AddCommunicator(kComm, {0, 1});
  for (int i = 0; i < 20; ++i) job.Collective(kComm, "Broadcast", {0, 0}, kMs);
  EXPECT_EQ(Of(job).status, HealthStatus::kOk);
  EXPECT_EQ(Of(job).summary,
            "No hang is suspected. 2 processes are not compared for stragglers: no AllReduce, "
            "AllGather, ReduceScatter or AlltoAll.");
}

TEST_F(HealthTest, SomeCommunicatorsCannotBeSeen) {
  job.AddCommunicator(1, {0, 1, 2, 3});
  for (int rank = 0; rank < 4; ++rank) job.Call(1, rank, "Broadcast");
  job.Advance(kSecond - 1);
  EXPECT_THAT(Of(job).notes, IsEmpty());  // calls are made all the time
  job.Advance(1);
  const Health health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kIncomplete);
  EXPECT_EQ(health.summary, "No hang is suspected, but work of 4 of 8 ranks cannot be seen.");
  EXPECT_THAT(health.notes, ElementsAre("Whether work is in flight is not known for 4 of 8 ranks: "
                                        "NCCL does not report the launch of its last call (4)."));
}

TEST_F(HealthTest, OneRankOfWhichNothingIsKnownIsNoAllClear) {
  job.Of(kComm, 0).captured = true;
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  EXPECT_EQ(Of(job).blind_communicators, 0u);
  EXPECT_EQ(Of(job).summary, "No hang is suspected, but work of 1 of 4 ranks cannot be seen.");
}

// An engine is not called blind for the second in which its counters are proven.
TEST_F(HealthTest, ACounterThatIsBeingProvenIsANote) {
  for (int rank = 0; rank < 4; ++rank) {
    CommunicatorSnapshot& comm = job.Of(kComm, rank);
    comm.captured = true;
    comm.work.state = WorkState::kCalibrating;
    comm.work.is_being_proven = true;
  }
  Health health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kOk);
  EXPECT_EQ(health.summary, "No hang and no straggler is suspected.");
  EXPECT_EQ(health.unknown_ranks, 4u);
  EXPECT_EQ(health.blind_communicators, 0u);
  EXPECT_THAT(health.notes,
              ElementsAre("Whether work is in flight is not known for 4 of 4 ranks: "
                          "NCCL's counter of finished work is being calibrated (4)."));
  // Other communicators make the headline.
  job.AddCommunicator(1, {0, 1, 2, 3});
  for (int rank = 0; rank < 4; ++rank) job.Of(1, rank).has_heartbeat = false;
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  EXPECT_THAT(Of(job).summary, HasSubstr("work of 4 of 8 ranks cannot be seen"));
  // It should have been proven by now.
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).work.is_being_proven = false;
  EXPECT_EQ(Of(job).summary, "Cannot tell whether a rank hangs.");
  // It moves, so the engine replays, whatever its counter is.
  for (int rank = 0; rank < 4; ++rank) job.Of(kComm, rank).work.moved_realtime_ns = job.now();
  EXPECT_EQ(Of(job).blind_communicators, 1u);
}

TEST_F(HealthTest, RanksThatAreNotSeenAreSaid) {
  job = RunningJob(7);
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  EXPECT_EQ(Of(job).summary, "No hang is suspected, but 3 ranks are not seen.");
  EXPECT_THAT(Of(job).notes,
              ElementsAre("3 ranks of communicator 00000000000000c0 are not seen here."));
  job.process(3).end = ProcessEnd::kExit;  // it was
  EXPECT_THAT(Of(job).notes,
              ElementsAre("3 ranks of communicator 00000000000000c0 are not seen here."));
  EXPECT_THAT(Of(RunningJob(5)).notes, ElementsAre(HasSubstr("1 rank of communicator")));
  EXPECT_THAT(Of(RunningJob(8, 2)).notes, IsEmpty());  // they may be on the other node
}

TEST_F(HealthTest, RejectedProcessesAreSaid) {
  const SimulatedJob job = RunningJob();
  SnapshotSet set = job.Set();
  set.rejected[static_cast<int>(Rejection::kNoRoom)] = 2;
  set.rejected[static_cast<int>(Rejection::kBadLayout)] = 1;
  EXPECT_THAT(HealthOf(set, {}, job.now()).notes,
              ElementsAre("This endpoint has rejected processes 3 times since it started: "
                          "bad_layout (1), no_room (2). Rejected processes are not measured."));
  EXPECT_EQ(HealthOf(set, {}, job.now()).status, HealthStatus::kOk);  // these have ended
  set.unread_processes = 2;
  EXPECT_EQ(HealthOf(set, {}, job.now()).status, HealthStatus::kIncomplete);
  EXPECT_EQ(HealthOf(set, {}, job.now()).summary,
            "No hang is suspected, but 2 processes are rejected by this endpoint.");
}

TEST_F(HealthTest, NothingIsInUseAmongProcessesThatAreRead) {
  SnapshotSet set;
  EXPECT_EQ(HealthOf(set, {}, kStart).status, HealthStatus::kUnused);
  set.rejected[static_cast<int>(Rejection::kTooLarge)] = 1;  // it has ended
  EXPECT_EQ(HealthOf(set, {}, kStart).status, HealthStatus::kUnused);
  set.unread_processes = 1;
  EXPECT_EQ(HealthOf(set, {}, kStart).status, HealthStatus::kIncomplete);
  EXPECT_EQ(HealthOf(set, {}, kStart).summary,
            "No hang is suspected, but 1 process is rejected by this endpoint.");
}

TEST_F(HealthTest, HangsAndUsualWaits) {
  job = LaunchingJob({0, 1, 2});
  job.Advance(kHangAfter);
  EXPECT_EQ(Of(job).status, HealthStatus::kHang);
  EXPECT_EQ(Of(job).summary, "");
  for (int rank = 0; rank < 3; ++rank) {
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", 60 * kSecond)};
  }
  EXPECT_EQ(Of(job).status, HealthStatus::kWaiting);
  // Another communicator hangs, and not as usual.
  job.AddCommunicator(1, {0, 1, 2, 3});
  job.Launch(1, 3, "AllGather");
  job.Advance(kHangAfter);
  EXPECT_EQ(Of(job).status, HealthStatus::kHang);
}

TEST_F(HealthTest, AChangedEventMaskIsSaid) {
  job.process(2).event_mask_changes = 2;
  job.process(2).foreign_event_mask = 0x2;
  job.Of(kComm, 2).event_mask = 0xf0a;
  const Health health = Of(job);
  EXPECT_THAT(health.notes,
              ElementsAre(HasSubstr("another program changed NCCL's profiler event mask (1)"),
                          HasSubstr("in pid 102, 2 times, now 0x2")));
}

// Nor is it seen to move.
TEST_F(HealthTest, WorkThatIsQueuedIsNoHang) {
  job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
  job.Advance(50 * kSecond);
  EXPECT_EQ(Of(job).status, HealthStatus::kIncomplete);
  EXPECT_EQ(Of(job).summary,
            "No hang is suspected, but 1 communicator is behind other work of its GPUs.");
  EXPECT_THAT(Of(job).notes, ElementsAre(HasSubstr("Communicator 00000000000000c0: Rank 0")));
}

// Whether or not somebody waits for it.
TEST_F(HealthTest, ADriverThatAnswersWithAnError) {
  job.AddCommunicator(1, {0, 1, 2, 3});
  for (const uint64_t id : {kComm, uint64_t{1}}) {
    job.Of(id, 2).driver_error = 700;
    job.Of(id, 2).driver_error_realtime_ns = kStart;
  }
  const Health health = Of(job);
  EXPECT_EQ(health.status, HealthStatus::kIncomplete);
  EXPECT_EQ(health.failed_gpus, 1u);
  EXPECT_THAT(health.notes,
              testing::Contains("The driver of GPU 2 has reported CUDA_ERROR_ILLEGAL_ADDRESS "
                                "(700) to pid 102 since 08:53:20 UTC."));
}

TEST_F(HealthTest, EveryStatusHasAName) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(HealthStatus::kUnused); ++i) {
    names.insert(HealthStatusName(static_cast<HealthStatus>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(HealthStatus::kUnused) + 1);
}

}  // namespace
}  // namespace nccl_pulse
