// Processes in exit(): their handlers, or destructors, take long or hang, and they make no further
// call.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using Exiting = RunningJobTest;

TEST_F(Exiting, IsNamedForTheCallThatItOwes) {
  job.process(2).poller = PollerState::kEnded;
  const int64_t ended = job.now();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  job.Advance(kHangAfter);
  job.process(2).last_poll_realtime_ns = ended;
  const Hang hang = ExpectHangNow(job, HangVerdict::kRankNotCalled, {2});
  EXPECT_EQ(hang.missing_call, "AllReduce #21 (up to 1MiB)");
  EXPECT_EQ(hang.text,
            "Rank 2 (pid 102, GPU 2) has not called AllReduce #21 (up to 1MiB). Ranks 0, 1 and 3 "
            "wait in AllReduce. Rank 2 has been in exit() since 08:53:20 UTC.");
  // It never ends well, however long it took before.
  for (const int rank : {0, 1, 3}) {
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", 600 * kSecond)};
  }
  EXPECT_FALSE(HangOf(job)->is_usual);
}

// Events have not shown that the call before it has completed.
TEST_F(Exiting, WhereCompletionsLag) {
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  job.process(2).poller = PollerState::kEnded;
  const int64_t ended = job.now();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  job.Advance(kHangAfter);
  job.process(2).last_poll_realtime_ns = ended;
  ExpectHangNow(job, HangVerdict::kRankNotCalled, {2});
  // A watchdog of rank 2's ends it long after the others began to wait.
  job.process(2).last_poll_realtime_ns = job.now();
  EXPECT_THAT(HangNow(job).suspects, IsEmpty());
}

TEST_F(Exiting, IsNotSaidOfAProcessThatHasEnded) {
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  job.process(2).poller = PollerState::kEnded;
  job.process(2).end = ProcessEnd::kExit;
  job.process(2).end_realtime_ns = job.now();
  const Hang hang = ExpectHang(&job, HangVerdict::kProcessGone, {2});
  EXPECT_THAT(hang.text, Not(HasSubstr("in exit()")));
}

// Its background thread has ended first, and its GPU was in the call that the others are in.
TEST_F(Exiting, WhoEndsInACallThatAllHaveMadeIsWhyTheOthersWait) {
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  job.Advance(kSecond);
  job.process(2).poller = PollerState::kEnded;
  job.process(2).end = ProcessEnd::kExit;
  job.process(2).end_realtime_ns = job.now();
  ExpectHang(&job, HangVerdict::kProcessGone, {2});
}

// A victim that has called all that the others have: a watchdog ends it.
TEST_F(Exiting, WhoHasCalledIsNotToBlame) {
  job = LaunchingJob({0, 1, 2});
  job.process(2).poller = PollerState::kEnded;
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
}

TEST_F(Exiting, BesideOneThatHasNotCalledEither) {
  job.process(2).poller = PollerState::kEnded;
  LaunchOn(&job, {0, 1}, "AllReduce");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.text, HasSubstr("Rank 2 has been in exit() since "));
}

// With Send and Recv, or in graphs, it is not known what it owes; but it comes to nothing any more.
TEST_F(Exiting, WhereCallsCannotBeCompared) {
  for (int rank = 0; rank < 4; ++rank) {
    job.Launch(kComm, rank, rank % 2 == 0 ? "Send" : "Recv");
    job.Complete(kComm, rank);
  }
  job.process(2).poller = PollerState::kEnded;
  LaunchOn(&job, {3}, "Recv");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.text, HasSubstr("Rank 2 (pid 102, GPU 2) will make no further call. "
                                   "Rank 3 waits in Recv. Rank 2 has been in exit() since "));
}

}  // namespace
}  // namespace nccl_pulse
