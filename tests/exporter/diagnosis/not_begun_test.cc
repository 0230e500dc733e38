// Ranks that have launched, and whose GPUs have not begun it.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "metrics/call_order.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

// The rank's last calls; it has completed all but the last.
void SetCalls(SimulatedJob* job, int rank, const std::vector<std::string>& ops) {
  CommunicatorSnapshot& comm = job->Of(kComm, rank);
  std::vector<LastCallSnapshot> calls(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    calls[i].op = ops[i];
    calls[i].launch = calls[i].collective_number = comm.launches - ops.size() + 1 + i;
    calls[i].launch_realtime_ns = job->now();
  }
  comm.call_order = CallOrderOf(calls, comm.launches_completed);
}

using HangTest = RunningJobTest;

TEST_F(HangTest, NamesTheRankWhoseGpuHasNotBegun) {
  job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, OldestLaunch::kUnknown});
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotBegun, {1});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 2, 3));
  EXPECT_EQ(hang.op, "AllReduce");
  EXPECT_EQ(hang.text,
            "Rank 1 (pid 101, GPU 1) has launched AllReduce (up to 1MiB), but its GPU has not "
            "begun it: work before it on the stream has not ended. Ranks 0, 2 and 3 wait in "
            "AllReduce.");
}

TEST_F(HangTest, SeveralGpusHaveNotBegun) {
  job = LaunchingJob({0, 1, 2, 3});
  LaunchOn(&job, {0, 1}, "AllGather");  // their hosts are ahead
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kNotBegun});
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotBegun, {1, 3});
  EXPECT_EQ(hang.text,
            "Rank 1 (pid 101, GPU 1) and rank 3 (pid 103, GPU 3) have launched what the others "
            "wait in, but their GPUs have not begun it: work before it on the streams has not "
            "ended. Ranks 0 and 2 wait.");
}

// Of a communicator over nodes, or of which a rank was never seen, too.
TEST_F(HangTest, WhoHasNotBegunIsNamedBesideRanksThatAreNotHere) {
  for (const int nnodes : {1, 2}) {
    job = RunningJob(8, nnodes);
    LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
    SetBegun(&job, kComm, {kBegun, kBegun, kNotBegun, kBegun});
    ExpectHang(&job, HangVerdict::kRankNotBegun, {2});
  }
}

// A healthy host runs ahead: what it has queued stands behind work of its own GPU.
TEST_F(HangTest, NoneWhileNoGpuHasBegun) {
  for (const int nranks : {4, 6}) {  // of some ranks nothing is seen
    job = RunningJob(nranks);
    LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
    const int64_t launched = job.now();
    LaunchOn(&job, {0, 1}, "AllGather");  // further ahead
    SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
    job.Advance(50 * kSecond);
    const CommunicatorDiagnosis diagnosis = DiagnosisOf(job);
    EXPECT_EQ(diagnosis.hang, std::nullopt);
    ASSERT_TRUE(diagnosis.queued);
    EXPECT_EQ(diagnosis.queued->since_realtime_ns, launched);
    EXPECT_THAT(diagnosis.queued->ranks, ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(diagnosis.queued->text,
                HasSubstr("Earlier work of these GPUs has not ended since "));
    EXPECT_EQ(diagnosis.queued->text.find("not seen here") != std::string::npos, nranks == 6);
    // One of them comes to it, and the others do not.
    SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun, kBegun});
    if (nranks == 4) {
      ExpectHangNow(job, HangVerdict::kRankNotBegun, {0, 1, 2});
    } else {  // their kernels may wait for them
      ExpectHangNow(job, HangVerdict::kRankNotSeen, {4, 5});
    }
    EXPECT_EQ(DiagnosisOf(job).queued, std::nullopt);
  }
}

// What the GPUs work on may be a wait that is not seen.
TEST_F(HangTest, QueuedBesideACommunicatorThatCannotBeSeen) {
  job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
  job.AddCommunicator(1, {0, 1, 2, 3});
  job.Call(1, 2, "Broadcast");
  job.Advance(50 * kSecond);
  ASSERT_TRUE(DiagnosisOf(job).queued);
  EXPECT_EQ(DiagnosisOf(job).queued->text,
            "Rank 0 (pid 100, GPU 0), rank 1 (pid 101, GPU 1), rank 2 (pid 102, GPU 2) and rank 3 "
            "(pid 103, GPU 3) have launched AllReduce, and their GPUs have not begun it. Earlier "
            "work of these GPUs has not ended since 08:53:20 UTC. It may wait in communicator "
            "0000000000000001, whose work cannot be seen.");
}

// Rank 3's host has not come yet; nobody's GPU waits for it.
TEST_F(HangTest, NoneWhileOneHasNotCalledAndNoGpuHasBegun) {
  job = LaunchingJob({0, 1, 2});
  SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun});
  ExpectNoHang(&job, 50 * kSecond);
  EXPECT_TRUE(DiagnosisOf(job).queued);
}

// Before it stands a Broadcast that NCCL did not report: it may be what they wait in.
TEST_F(HangTest, BehindACallThatIsNotReportedWhoHasNotCalledIsNamed) {
  for (const int rank : {1, 2, 3}) job.Call(kComm, rank, "Broadcast");
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {OldestLaunch::kUnknown, kNotBegun, kNotBegun, kNotBegun});
  ExpectHang(&job, HangVerdict::kRankNotCalled, {0});
}

// Of a rank that cannot be seen it is not known whether it has begun.
TEST_F(HangTest, OneThatCannotBeSeenAndNoOtherGpuHasBegun) {
  job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kNotBegun, kNotBegun, kNotBegun});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
}

// Nobody is known to wait in it.
TEST_F(HangTest, OneGpuHasNotBegunAndOfOthersNothingIsKnown) {
  job = RunningJob(8, 2);
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {OldestLaunch::kUnknown, kNotBegun});
  const Hang hang = ExpectHang(&job, HangVerdict::kNoProgress, {});
  EXPECT_THAT(hang.text, HasSubstr("Compare with the other nodes. The GPU of rank 1 (pid 101, GPU "
                                   "1) has not begun it: work before it on the stream has not "
                                   "ended."));
}

// It has done what the others wait in: an operation that a rank may leave before the others.
TEST_F(HangTest, WhoIsAheadIsNotNamed) {
  job = LaunchingJob({0, 1, 2, 3}, "Broadcast");
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  ++job.Of(kComm, 0).launches_completed;
  SetBegun(&job, kComm, {kNotBegun, kBegun, kBegun, kBegun});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  // The other way round it is.
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {1});
}

// Launches without events of their own: rank 0's completions are not known, rank 1's are.
TEST_F(HangTest, UnknownCompletionsOfOthersHideNoGpuThatHasNotBegun) {
  for (const std::string op : {"AllReduce", "Broadcast"}) {
    job = RunningJob();
    for (int i = 0; i < 3; ++i) LaunchOn(&job, {0, 1, 2, 3}, op);
    LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
    job.Of(kComm, 1).launches_completed += 3;
    SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
    SetCalls(&job, 1, {op, op, op, "AllReduce"});
    if (op == "AllReduce") {
      ExpectHang(&job, HangVerdict::kRankNotBegun, {1});
    } else {  // its root is done before the others have come
      ExpectHang(&job, HangVerdict::kNoProgress, {});
    }
  }
}

TEST_F(HangTest, WithSendAndRecvLaunchesAreNotCompared) {
  for (int rank = 0; rank < 4; ++rank) {
    job.Launch(kComm, rank, rank % 2 == 0 ? "Send" : "Recv");
    job.Complete(kComm, rank);
  }
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
}

// What is known of launches that have completed since says nothing.
TEST_F(HangTest, IdleRanksHaveNothingToBegin) {
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  ExpectNoHang(&job);
}

}  // namespace
}  // namespace nccl_pulse
