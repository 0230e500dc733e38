// Work that stands behind earlier work of its own GPUs: for how long that is none of NCCL's
// business.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kLimit = 6 * kHangAfter;

// All GPUs but those of `without` stand in a kernel that is not NCCL's, with an AllReduce behind
// it.
SimulatedJob Behind(const std::set<int>& without = {}) {
  SimulatedJob job = RunningJob();
  for (int rank = 0; rank < 4; ++rank) {
    if (without.count(rank) != 0) continue;
    job.Launch(kComm, rank, "AllReduce");
    job.Of(kComm, rank).oldest_launch = kNotBegun;
  }
  return job;
}

TEST(Queued, ForLongIsAStallOfWhichNobodyIsNamed) {
  SimulatedJob job = Behind();
  ExpectNoHang(&job, kLimit - 1);
  EXPECT_TRUE(DiagnosisOf(job).queued);
  job.Advance(1);
  EXPECT_EQ(DiagnosisOf(job).queued, std::nullopt);
  const Hang hang = ExpectHangNow(job, HangVerdict::kNoProgress, {});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(hang.situation, Situation::kQueued);
  EXPECT_THAT(hang.text,
              HasSubstr("their GPUs have not begun it. Earlier work of these GPUs has not ended "
                        "since 08:53:20 UTC. Probably a kernel outside of NCCL."));
}

// One GPU may stand before the Broadcast, and the others in it: no gate tells which of its ranks have begun.
TEST(Queued, MayBeBehindACallThatNcclDoesNotReport) {
  SimulatedJob job = RunningJob();
  for (int rank = 0; rank < 4; ++rank) {
    job.Call(kComm, rank, "Broadcast");
    job.Of(kComm, rank).untimed.push_back({"Broadcast", UntimedReason::kUnreported, 1});
    job.Launch(kComm, rank, "AllReduce");
    job.Of(kComm, rank).oldest_launch = kNotBegun;
  }
  job.Advance(kLimit);
  const Hang hang = ExpectHangNow(job, HangVerdict::kNoProgress, {});
  EXPECT_THAT(
      hang.text,
      HasSubstr("Probably a kernel outside of NCCL, or Broadcast, whose launch NCCL does not "
                "report."));
}

// A job of which one host does not come: what the others stand in may wait for it.
TEST(Queued, ForLongWhileOneRankHasNotCalled) {
  SimulatedJob job = Behind({3});
  ExpectNoHang(&job, kLimit - 1);
  job.Advance(1);
  const Hang hang = ExpectHangNow(job, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(hang.text,
              HasSubstr("Ranks 0, 1 and 2 have launched AllReduce, but earlier work of their GPUs "
                        "has not ended since 08:53:20 UTC: probably a kernel outside of NCCL."));
}

// Rank 0 is inside already. That changes nothing of the kernels in front of ranks 1 and 2.
TEST(Queued, KernelsThatMayWaitForOneThatHasNotCalledAcquitTheirGpus) {
  SimulatedJob job = Behind({3});
  job.Of(kComm, 0).oldest_launch = kBegun;
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
}

// Rank 3 had not called when the others began to wait, whatever became of it meanwhile.
TEST(Queued, TheOneThatHasNotCalledMayHaveEndedOrFailedSince) {
  SimulatedJob job = Behind({3});
  job.Of(kComm, 0).oldest_launch = kBegun;
  job.Advance(8 * kSecond);
  SimulatedJob failed = job;
  failed.Of(kComm, 3).has_heartbeat = false;
  failed.Of(kComm, 3).driver_error = 700;
  failed.Of(kComm, 3).driver_error_realtime_ns = failed.now();
  ExpectHang(&failed, HangVerdict::kRankNotCalled, {3});
  End(&job, 3);
  ExpectHang(&job, HangVerdict::kProcessGone, {3});
}

// It is rather the GPU of the one that has called which is in the way.
TEST(Queued, ForLongWhileMostHaveNotCalled) {
  SimulatedJob job = Behind({0, 1, 3});
  job.Advance(kLimit);
  ExpectHangNow(job, HangVerdict::kNoProgress, {});
}

TEST(Queued, AsLongAsBeforeIsUsual) {
  SimulatedJob job = Behind();
  for (int rank = 0; rank < 4; ++rank) {
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", 100 * kSecond)};
  }
  job.Advance(kLimit);
  EXPECT_TRUE(HangNow(job).is_usual);
  job.Advance(2 * kLimit);
  EXPECT_FALSE(HangOf(job)->is_usual);
}

// What does not fit together is proven, whatever stands in front of it.
TEST(Queued, DoesNotHideCallsThatDiffer) {
  SimulatedJob job = Behind({3});
  job.Launch(kComm, 3, "AllGather");
  job.Of(kComm, 3).oldest_launch = kNotBegun;
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {3});
  EXPECT_NE(hang.situation, Situation::kQueued);
}

// Behind NCCL's own work the hang is where that stands, however long it takes.
class QueuedBehindNccl : public testing::Test {
 protected:
  static constexpr uint64_t kFront = 1;

  QueuedBehindNccl() : job_(RunningJob()) {
    job_.AddCommunicator(kFront, {0, 1, 2, 3});
    for (int rank = 0; rank < 4; ++rank) job_.Launch(kFront, rank, "AllReduce");
    job_.Advance(kMs);
    LaunchOn(&job_, {0, 1, 2, 3}, "AllReduce");
    SetBegun(&job_, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
  }

  SimulatedJob job_;
};

TEST_F(QueuedBehindNccl, IsNoHangOfItsOwn) {
  SetBegun(&job_, kFront, {kBegun, kBegun, kBegun, kBegun});
  job_.Advance(2 * kLimit);
  ExpectHangNow(job_, HangVerdict::kNoProgress, {}, kFront);
  EXPECT_EQ(HangOf(job_), std::nullopt);
  EXPECT_TRUE(DiagnosisOf(job_).queued);
}

// A rank that others wait for does not wait where it is behind its own GPU.
TEST_F(QueuedBehindNccl, AcquitsNobody) {
  SimulatedJob job = Behind();
  job.AddCommunicator(kFront, {0, 1, 2, 3});
  for (const int rank : {0, 1, 2}) job.Launch(kFront, rank, "AllReduce");
  job.Advance(kLimit);
  ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {3}, kFront);
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {3});
}

// Others wait for a GPU that does not come, and in that rank's own communicator one has not called:
// the others there stand in something that may wait for it.
TEST(Queued, WhoIsWaitedForPointsToTheOneThatDiffers) {
  constexpr uint64_t kData = 1;
  for (const bool has_called : {true, false}) {
    SimulatedJob job(5);
    job.AddCommunicator(kComm, {0, 1, 2, 3});
    job.AddCommunicator(kData, {0, 4});
    for (const int rank : {0, 1, 2}) job.Launch(kComm, rank, "AllReduce");
    SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun});
    job.Launch(kData, 1, "AllReduce");
    if (has_called) job.Launch(kData, 0, "AllReduce");
    SetBegun(&job, kData, {kNotBegun, kBegun});
    ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
    const Hang hang = ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {0}, kData);
    EXPECT_THAT(hang.text, HasSubstr("may wait in communicator 00000000000000c0"));
  }
}

// Nothing says that a GPU has come to its launch: it may have earlier work to do.
TEST(Queued, WhereItIsNotKnownThatIsSaid) {
  for (const OldestLaunch oldest : {OldestLaunch::kUnknown, kBegun}) {
    for (const int launches : {1, 2}) {
      SimulatedJob job = RunningJob();
      for (int i = 0; i < launches; ++i) LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
      SetBegun(&job, kComm, {oldest, oldest, oldest, oldest});
      const Hang hang = ExpectHang(&job, HangVerdict::kNoProgress, {});
      // Of several the first may have completed: nothing tells of the last.
      const bool is_known = oldest == kBegun && launches == 1;
      EXPECT_EQ(hang.text,
                std::string("All ranks have called and launched the same work, and none of it has "
                            "completed (AllReduce): the cause is ") +
                    (is_known ? "a GPU or the network."
                              : "a GPU, the network, or earlier work of GPUs that are not known "
                                "to have begun it."));
    }
  }
}

// A GPU that has begun it tells nothing of the others.
TEST(Queued, OneGpuThatHasBegunIsNoProofForTheOthers) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kBegun, OldestLaunch::kUnknown, kBegun, kBegun});
  EXPECT_THAT(ExpectHang(&job, HangVerdict::kNoProgress, {}).text,
              HasSubstr("or earlier work of GPUs that are not known to have begun it."));
}

// Data crosses the network: a long collective, and no hang. Behind NVLink nothing tells of that.
TEST(Moving, ACollectiveThatMovesIsNoHang) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  for (int second = 0; second < 60; ++second) {
    job.Advance(kSecond);
    job.Of(kComm, 1).network_moved_realtime_ns = job.now();  // one rank of the node has the network
    EXPECT_EQ(HangOf(job), std::nullopt) << second;
  }
  const int64_t moved = job.now();
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kNoProgress, {});
  EXPECT_EQ(hang.since_realtime_ns, moved);
}

// Nor is a wait for one that is in it, or for one that waits for that.
TEST(Moving, NobodyIsAwaitedWhoIsInOneThatMoves) {
  constexpr uint64_t kData = 1, kTensor = 2, kThird = 3;
  SimulatedJob job(4);
  job.AddCommunicator(kData, {0, 1});
  job.AddCommunicator(kTensor, {0, 2});
  job.AddCommunicator(kThird, {2, 3});
  for (const int rank : {0, 1}) job.Launch(kData, rank, "AllReduce");
  job.Launch(kTensor, 1, "AllReduce");  // process 2 waits for process 0
  job.Launch(kThird, 1, "AllReduce");   // and process 3 for process 2
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job, kTensor));
  job.Of(kData, 0).network_moved_realtime_ns = job.now();
  for (const uint64_t id : {kData, kTensor, kThird}) EXPECT_EQ(HangOf(job, id), std::nullopt) << id;
}

// What Sends and Recvs of others move says nothing of who waits.
TEST(Moving, OthersSendsAreNoSign) {
  SimulatedJob job = RunningJob();
  for (int rank = 0; rank < 4; ++rank) {
    job.Launch(kComm, rank, rank % 2 == 0 ? "Send" : "Recv");
    job.Complete(kComm, rank);
  }
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  job.Advance(kHangAfter);
  job.Of(kComm, 1).network_moved_realtime_ns = job.now();
  EXPECT_TRUE(HangOf(job));
}

}  // namespace
}  // namespace nccl_pulse
