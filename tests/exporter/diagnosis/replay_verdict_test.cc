// Hangs within replays of CUDA graphs: who is named, by what stamps counted, and where nobody is.
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kStamps = 3;
constexpr uint32_t kCalls = 65;
// Calls in front of each stamp, and all.
constexpr uint32_t kBefore[kStamps + 1] = {0, 60, 61, kCalls};

void Capture(SimulatedJob* job, int rank, const std::string& op, uint64_t id = kComm) {
  CommunicatorSnapshot& comm = job->Of(id, rank);
  comm.captured = true;
  comm.calls.push_back({op, 4, "ncclFloat32", true, kCalls, 0});
  comm.graph_position.captures = comm.graph_position.followed = 1;
}

// The GPU has begun so many replays, and of the last one passed so many stamps, just now.
void Stand(SimulatedJob* job, int rank, uint64_t replays, uint32_t passed, uint64_t id = kComm) {
  CommunicatorSnapshot& comm = job->Of(id, rank);
  GraphPosition& position = comm.graph_position;
  comm.graph_replays = replays;
  comm.graph_replays_in_flight = passed < kStamps ? 1 : 0;
  comm.graph_moved_realtime_ns = job->now();
  position.graph = 1;
  position.stamps = kStamps;
  position.passed = passed;
  position.calls_before = kBefore[passed - 1];
  position.calls_until = kBefore[passed];
  position.calls = kCalls;
  position.has_head = true;
}

// Four ranks that have replayed a graph a hundred times.
SimulatedJob ReplayingJob(const std::string& op = "AllReduce", int nranks = 0, int nnodes = 1) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3}, nranks, nnodes);
  job.Collective(kComm, "AllReduce", kTogether, kMs);
  for (int rank = 0; rank < 4; ++rank) {
    Capture(&job, rank, op);
    Stand(&job, rank, 100, kStamps);
  }
  job.Advance(kSecond);
  return job;
}

void StandAll(SimulatedJob* job, const std::vector<uint64_t>& replays,
              const std::vector<uint32_t>& passed) {
  for (int rank = 0; rank < 4; ++rank) Stand(job, rank, replays[rank], passed[rank]);
}

// Rank 2's program launches no further replay.
SimulatedJob NotLaunchedJob() {
  SimulatedJob job = ReplayingJob();
  for (const int rank : {0, 1, 3}) Stand(&job, rank, 101, 1);
  return job;
}

struct ReplayVerdict : testing::Test {
  SimulatedJob job = NotLaunchedJob();
};

TEST_F(ReplayVerdict, RankThatHasNotBegunIsNamed) {
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kRankNotBegun, {2});
  EXPECT_EQ(hang.waiting, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(hang.replay.graph, 1u);
  EXPECT_EQ(hang.replay.before, 0u);
  EXPECT_EQ(hang.replay.until, 60u);
  EXPECT_EQ(hang.replay.calls, kCalls);
  EXPECT_FALSE(hang.is_usual);
}

// A graph of up to 60 launches has one stamp: none of its replays is known to be in flight.
void SetOneStamp(SimulatedJob* job) {
  for (int rank = 0; rank < 4; ++rank) {
    CommunicatorSnapshot& comm = job->Of(kComm, rank);
    comm.graph_replays_in_flight = 0;
    comm.graph_position.passed = comm.graph_position.stamps = 1;
    comm.graph_position.calls_before = 0;
    comm.graph_position.calls_until = kCalls;
  }
}

// No rank ends what another one has not begun, but a count alone is no sign that somebody waits.
TEST_F(ReplayVerdict, OneStampIsEnoughBesideALaunch) {
  SetOneStamp(&job);
  SimulatedJob idle = job;
  idle.Advance(60 * kSecond);
  EXPECT_EQ(HangOf(idle), std::nullopt);
  LaunchOn(&job, {1}, "AllReduce");
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kRankNotBegun, {2});
  EXPECT_EQ(hang.replay.until, kCalls);
}

// A stamp that two replays passed at once can read one less until the next one: in a job that does
// nothing that is no hang.
TEST_F(ReplayVerdict, SmallerCountInAnIdleJobIsNoHang) {
  job = ReplayingJob();
  Stand(&job, 2, 99, kStamps);
  ExpectNoHang(&job, 60 * kSecond);
  // In a hang beside the graphs the calls there count.
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
}

// The others have queued ten replays and the eager calls behind them.
TEST_F(ReplayVerdict, WorkQueuedBehindTheReplayChangesNothing) {
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  for (const int rank : {0, 1, 3}) {
    job.Of(kComm, rank).oldest_launch = OldestLaunch::kNotBegun;
  }
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotBegun, {2});
  EXPECT_EQ(hang.waiting, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(DiagnosisOf(job).queued, std::nullopt);
}

// The same where all work in flight is queued: the replay itself is not seen in flight.
TEST_F(ReplayVerdict, WorkQueuedBehindAReplayOfOneStampIsNotBehindOwnWork) {
  SetOneStamp(&job);
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
  ExpectHang(&job, HangVerdict::kRankNotBegun, {2});
  EXPECT_EQ(DiagnosisOf(job).queued, std::nullopt);
}

TEST_F(ReplayVerdict, RankThatHasPassedFewerStampsIsNamed) {
  job = ReplayingJob();
  StandAll(&job, {101, 101, 101, 101}, {2, 2, 1, 2});
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kRankNotBegun, {2});
  EXPECT_EQ(hang.waiting, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(hang.replay.before, 60u);
  EXPECT_EQ(hang.replay.until, 61u);
}

TEST_F(ReplayVerdict, WhereAllStandAlikeNobodyIsNamed) {
  job = ReplayingJob();
  StandAll(&job, {101, 101, 101, 101}, {1, 1, 1, 1});
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kNoProgress, {});
  EXPECT_EQ(hang.waiting, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(hang.replay.until, 60u);
}

// Launches of all ranks that have not begun: behind the replay, not behind work of their own.
TEST_F(ReplayVerdict, LaunchesBehindAReplayAreNotQueuedBehindOwnWork) {
  job = ReplayingJob();
  StandAll(&job, {101, 101, 101, 101}, {1, 1, 1, 1});
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  EXPECT_EQ(DiagnosisOf(job).queued, std::nullopt);
}

TEST_F(ReplayVerdict, ReplaysThatHaveEndedAreNoHang) {
  job = ReplayingJob();
  ExpectNoHang(&job);
}

TEST_F(ReplayVerdict, ReplaysThatGoOnAreProgress) {
  job = ReplayingJob();
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");  // behind many replays
  job.Advance(kHangAfter - kSecond);
  StandAll(&job, {150, 150, 150, 150}, {1, 1, 1, 1});
  ExpectNoHang(&job, kHangAfter - 1);
}

TEST_F(ReplayVerdict, RanksOnOtherNodesMayBeTheOnes) {
  job = ReplayingJob("AllReduce", 8, 2);
  StandAll(&job, {101, 101, 101, 101}, {1, 1, 1, 1});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
}

TEST_F(ReplayVerdict, RankThatIsNotHereIsSaid) {
  job = ReplayingJob("AllReduce", 5);
  StandAll(&job, {101, 101, 101, 101}, {1, 1, 1, 1});
  ExpectHang(&job, HangVerdict::kRankNotSeen, {4});
}

// ---- what cannot be told --------------------------------------------------------------------

TEST_F(ReplayVerdict, OtherGraphsCannotBeCompared) {
  job.Of(kComm, 2).graph_position.captures = 2;
  ExpectHang(&job, HangVerdict::kUnknown, {});
  job.Of(kComm, 2).graph_position.captures = 1;
  job.Of(kComm, 2).calls.back().calls = kCalls - 1;
  ExpectHangNow(job, HangVerdict::kUnknown, {});
  job.Of(kComm, 2).calls.back().calls = kCalls;
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {2});
}

TEST_F(ReplayVerdict, AnotherOrderOfGraphsCannotBeCompared) {
  job.Of(kComm, 3).graph_position.graph = 2;
  ExpectHang(&job, HangVerdict::kUnknown, {});
}

TEST_F(ReplayVerdict, RankWithoutStampsCannotBeCompared) {
  job.Of(kComm, 2).graph_position = {};
  ExpectHang(&job, HangVerdict::kUnknown, {});
}

// What its stamps counted since has not been read.
TEST_F(ReplayVerdict, RankWhoseThreadDoesNotLookCannotBeCompared) {
  job.process(2).poller = PollerState::kNotStarted;
  ExpectHang(&job, HangVerdict::kUnknown, {});
}

TEST_F(ReplayVerdict, OperationsThatMayBeLeftEarlyCannotBeCompared) {
  for (const char* op : {"Broadcast", "Reduce", "Send"}) {
    job = ReplayingJob(op);
    for (const int rank : {0, 1, 3}) Stand(&job, rank, 101, 1);
    ExpectHang(&job, HangVerdict::kUnknown, {});
  }
}

// Behind in its replays and ahead in its calls: not the same order.
TEST_F(ReplayVerdict, RankThatHasCalledMoreBesideIsNotNamed) {
  LaunchOn(&job, {2}, "AllReduce");
  ExpectHang(&job, HangVerdict::kUnknown, {});
}

TEST_F(ReplayVerdict, RankThatHasNotCalledBesideEqualReplaysIsNamed) {
  job = ReplayingJob();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  // A root leaves its Broadcast, and a rank that has called something else waits elsewhere.
  for (const char* op : {"Broadcast", "AllGather"}) {
    SimulatedJob other = ReplayingJob();
    LaunchOn(&other, {0, 1, 3}, op);
    if (WaitsForAll(op)) LaunchOn(&other, {2}, "ReduceScatter");
    ExpectHang(&other, HangVerdict::kUnknown, {});
  }
}

// ---- what is known without stamps comes first ------------------------------------------------

TEST_F(ReplayVerdict, ProcessThatIsGoneComesFirst) {
  End(&job, 2);
  ExpectHang(&job, HangVerdict::kProcessGone, {2});
}

// ---- several communicators -------------------------------------------------------------------

// Rank 0 of kComm waits in a replay of another communicator, for its rank 1.
TEST_F(ReplayVerdict, RankThatWaitsElsewhereIsNotTheRoot) {
  constexpr uint64_t kOther = 0xc1;
  job = SimulatedJob(3);
  job.AddCommunicator(kComm, {0, 1});
  job.AddCommunicator(kOther, {0, 2});
  for (int rank = 0; rank < 2; ++rank) {
    Capture(&job, rank, "AllReduce");
    Stand(&job, rank, 100, kStamps);
    Capture(&job, rank, "AllReduce", kOther);
    Stand(&job, rank, 100, kStamps, kOther);
  }
  // One graph: its stamps count for both communicators.
  Stand(&job, 0, 101, 1);
  Stand(&job, 0, 101, 1, kOther);
  Stand(&job, 1, 101, 2);
  ExpectHang(&job, HangVerdict::kBlockedElsewhere, {0});
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {1}, kOther);
}

// It is behind on both, and in flight on both: it waits for nobody.
TEST_F(ReplayVerdict, RankThatIsBehindOnBothIsNamedOnBoth) {
  constexpr uint64_t kOther = 0xc1;
  job = SimulatedJob(3);
  job.AddCommunicator(kComm, {0, 1});
  job.AddCommunicator(kOther, {0, 2});
  for (const uint64_t id : {kComm, kOther}) {
    for (int rank = 0; rank < 2; ++rank) {
      Capture(&job, rank, "AllReduce", id);
      Stand(&job, rank, 101, rank == 0 ? 1 : 2, id);
    }
  }
  ExpectHang(&job, HangVerdict::kRankNotBegun, {0});
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {0}, kOther);
}

// Its GPU has begun neither the replay nor what was launched behind it.
TEST_F(ReplayVerdict, GpuThatIsStuckBeforeTheReplayIsNamed) {
  job = ReplayingJob();
  job.AddCommunicator(0xc1, {0, 1, 2, 3});
  for (const int rank : {0, 1, 3}) Stand(&job, rank, 101, 1);
  for (int rank = 0; rank < 4; ++rank) job.Launch(0xc1, rank, "AllGather");
  SetBegun(&job, 0xc1, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
  ExpectHang(&job, HangVerdict::kBlockedElsewhere, {2});
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {2}, 0xc1);
}

// Some of its graphs elsewhere are not followed: it may wait in one of them.
TEST_F(ReplayVerdict, RankThatMayWaitUnseenElsewhereIsNotNamed) {
  constexpr uint64_t kOther = 0xc1;
  job = NotLaunchedJob();
  job.AddCommunicator(kOther, {2});
  Capture(&job, 0, "AllReduce", kOther);
  Stand(&job, 0, 100, kStamps, kOther);
  ExpectHang(&job, HangVerdict::kRankNotBegun, {2});
  job.Of(kOther, 0).graph_position.captures = 2;
  ExpectHangNow(job, HangVerdict::kUnknown, {});
}

}  // namespace
}  // namespace nccl_pulse
