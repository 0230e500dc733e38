// Processes that do not run, and background threads that do not look.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

TEST(Hang, ProcessStopped) {
  SimulatedJob job = LaunchingJob({0, 1, 3});
  AdvanceWithout(&job, 2);
  const Hang hang = ExpectHangNow(job, HangVerdict::kProcessStopped, {2});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 3));
}

TEST(Hang, WhoIsStoppedButHasCalledIsNotToBlame) {
  SimulatedJob job = LaunchingJob({0, 1, 2});
  AdvanceWithout(&job, 2);
  const Hang hang = ExpectHangNow(job, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(hang.text, HasSubstr("Rank 2 (pid 102, GPU 2) is not running."));
}

// The shorter threshold of another job does not count.
TEST(Hang, AProcessIsStoppedAfterItsOwnThreshold) {
  SimulatedJob job(2);
  for (const int process : {0, 1}) {
    job.AddCommunicator(process == 0 ? kComm : kOther, {process});
    job.process(process).hang_after_ns = process == 0 ? kSecond : 60 * kSecond;
    job.process(process).poller = PollerState::kRunning;
  }
  const auto are_stopped = [&job](int64_t after_ns) {
    std::vector<bool> stopped;
    for (const CommunicatorView& view : GroupByCommunicator(job.Set(), job.now() + after_ns)) {
      stopped.push_back(view.ranks.front().is_stopped);
    }
    return stopped;
  };
  EXPECT_THAT(are_stopped(kSecond - 1), ElementsAre(false, false));
  EXPECT_THAT(are_stopped(kSecond), ElementsAre(true, false));
  EXPECT_THAT(are_stopped(kStoppedAfterNs), ElementsAre(true, true));
}

// A debugger was attached to rank 2 to see where it waits: that is not why the job hangs.
class DebuggedWhileItWaits : public testing::Test {
 protected:
  static Hang ExpectHangOfRank2Stopped(SimulatedJob job, HangVerdict verdict,
                                       const std::vector<int32_t>& suspects) {
    AdvanceWithout(&job, 2);
    return ExpectHangNow(job, verdict, suspects);
  }
};

TEST_F(DebuggedWhileItWaits, DoesNotHideAGpuThatHasNotBegun) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  const Hang hang = ExpectHangOfRank2Stopped(job, HangVerdict::kRankNotBegun, {1});
  EXPECT_THAT(hang.text, HasSubstr(" Rank 2 (pid 102, GPU 2) is not running."));
}

TEST_F(DebuggedWhileItWaits, DoesNotHideARankThatEnded) {
  SimulatedJob job = LaunchingJob({0, 1, 2});
  job.Of(kComm, 3).finalized = true;
  ExpectHangOfRank2Stopped(job, HangVerdict::kRankNotCalled, {3});
}

TEST_F(DebuggedWhileItWaits, IsNotTakenForARankOnAnotherNode) {
  SimulatedJob job = RunningJob(8, 2);
  LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
  const Hang hang = ExpectHangOfRank2Stopped(job, HangVerdict::kNoProgress, {});
  EXPECT_THAT(hang.text, HasSubstr(" Rank 2 (pid 102, GPU 2) is not running."));
}

// All ranks are seen, and nothing else is wrong with any.
TEST_F(DebuggedWhileItWaits, IsTheLastResort) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  ExpectHangOfRank2Stopped(job, HangVerdict::kProcessStopped, {2});
}

TEST_F(DebuggedWhileItWaits, WhoHasCalledAndNotLaunchedDoesHoldUp) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  LaunchOn(&job, {0, 1, 3}, "AllGather");
  job.Call(kComm, 2, "AllGather");
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  ExpectHangOfRank2Stopped(job, HangVerdict::kProcessStopped, {2});
}

// Rank 2 was seen to run for long after the others began to wait, also where nothing says that it
// has called all that they have. A debugger came to look.
TEST(Hang, WhoIsStoppedLaterIsNotWhy) {
  for (const bool has_peers : {false, true}) {
    SimulatedJob job = RunningJob();
    for (int rank = 0; has_peers && rank < 4; ++rank) {
      job.Launch(kComm, rank, rank % 2 == 0 ? "Send" : "Recv");
      job.Complete(kComm, rank);
    }
    LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
    LaunchOn(&job, {0, 1, 3}, "AllReduce");
    job.Advance(20 * kSecond);
    AdvanceWithout(&job, 2, 20 * kSecond);
    job.process(2).run_state = RunState::kTraced;
    const Hang hang = ExpectHangNow(job, HangVerdict::kUnknown, {});
    EXPECT_THAT(hang.text, HasSubstr("Rank 2 (pid 102, GPU 2) is not running."));
  }
}

// The one that does not come is looked at: it still is the one.
TEST(Hang, ADebuggerAtTheOneThatDoesNotCome) {
  SimulatedJob job = LaunchingJob({0, 1, 3});
  job.Advance(20 * kSecond);
  AdvanceWithout(&job, 2, 20 * kSecond);
  job.process(2).run_state = RunState::kTraced;
  const Hang hang = ExpectHangNow(job, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.text, HasSubstr("Rank 2 (pid 102, GPU 2) is not running."));
}

// What the kernel says is what is said.
TEST(Hang, HowAProcessIsStopped) {
  const auto text_of = [](RunState state) {
    SimulatedJob job = LaunchingJob({0, 1, 3});
    AdvanceWithout(&job, 2);
    job.process(2).run_state = state;
    return ExpectHangNow(job, HangVerdict::kProcessStopped, {2}).text;
  };
  const std::string who = "Rank 2 (pid 102, GPU 2) is not running";
  EXPECT_EQ(text_of(RunState::kUnknown),
            who +
                ": stopped, held by a debugger, or paused with its container or host. Ranks 0, 1 "
                "and 3 wait in AllReduce.");
  EXPECT_THAT(text_of(RunState::kStopped), HasSubstr(who + ": stopped by a signal."));
  EXPECT_THAT(text_of(RunState::kTraced), HasSubstr(who + ": held by a debugger."));
  EXPECT_THAT(text_of(RunState::kFrozen), HasSubstr(who + ": frozen by its cgroup."));
  // A call of the driver that does not return, of another thread.
  const std::string does =
      "Rank 2 (pid 102, GPU 2) has done nothing since 08:53:20 UTC, though its ";
  EXPECT_THAT(text_of(RunState::kRunning),
              HasSubstr(does + "process runs: probably a driver call does not return."));
  EXPECT_THAT(text_of(RunState::kUninterruptible),
              HasSubstr(does + "process is in uninterruptible sleep (D): in a driver, or I/O."));
}

// All processes of a host stop at once: it was paused.
TEST(Hang, AHostThatIsPaused) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3}, 4, 2);
  for (int i = 0; i < 4; ++i) job.process(i).hostname = i < 2 ? "a" : "b";
  for (int i = 0; i < 20; ++i) job.Collective(kComm, "AllReduce", kTogether, kMs);
  LaunchOn(&job, {0, 1}, "AllReduce");
  const int64_t stopped = job.now();
  job.Advance(kHangAfter);
  for (const int rank : {2, 3}) job.process(rank).last_poll_realtime_ns = stopped;
  const Hang hang = ExpectHangNow(job, HangVerdict::kProcessStopped, {2, 3});
  EXPECT_THAT(hang.text, HasSubstr("They stopped at the same moment: their host was paused"));
  // One of them some seconds later: they are two processes.
  job.process(3).last_poll_realtime_ns = stopped + 3 * kSecond;
  EXPECT_THAT(HangOf(job)->text, Not(HasSubstr("at the same moment")));
}

// As above, but the host has just resumed, and its endpoint has answered before the plugins polled.
TEST(Hang, AHostThatWasPausedUntilNow) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3}, 4, 2);
  for (int i = 0; i < 4; ++i) job.process(i).hostname = i < 2 ? "a" : "b";
  LaunchOn(&job, {0, 1}, "AllReduce");
  const int64_t stopped = job.now();
  job.Advance(kHangAfter);
  for (const int rank : {2, 3}) {
    job.process(rank).last_poll_realtime_ns = stopped;
    job.process(rank).run_state = RunState::kRunning;
  }
  EXPECT_THAT(ExpectHangNow(job, HangVerdict::kProcessStopped, {2, 3}).text,
              HasSubstr("have done nothing since 08:53:20 UTC. They stopped at the same moment"));
}

// All have just resumed, and have not polled yet. Nothing is claimed for that moment.
TEST(Hang, AfterAPauseNothingIsKnownForAMoment) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  const int64_t paused = job.now();
  job.Advance(60 * kSecond);
  for (int i = 0; i < 4; ++i) {
    job.process(i).last_poll_realtime_ns = paused;
    job.process(i).run_state = RunState::kRunning;
  }
  EXPECT_EQ(HangOf(job), std::nullopt);
  // One of them looks: the others do stand.
  job.process(3).last_poll_realtime_ns = job.now();
  ExpectHangNow(job, HangVerdict::kProcessStopped, {0, 1, 2});
}

// Rank 1 does not run and has called less, too. Rank 3 may wait for it.
TEST(Hang, AStoppedProcessBeforeOneThatHasNotCalledEither) {
  SimulatedJob job = LaunchingJob({0, 2});
  AdvanceWithout(&job, 1);
  const Hang hang = ExpectHangNow(job, HangVerdict::kProcessStopped, {1});
  EXPECT_THAT(hang.text, HasSubstr("Rank 3 (pid 103, GPU 3) has not called AllReduce"));
}

// Its background thread stands, and it goes on launching: the process runs, and what has completed
// is not known. No hang, least of all of its making.
TEST(Hang, APollerThatStandsIsNoStoppedProcess) {
  SimulatedJob job = RunningJob();
  const int64_t stands = job.now();
  for (int i = 0; i < 30; ++i) {
    job.Collective(kComm, "AllReduce", kTogether, kSecond);
    job.Launch(kComm, 1, "AllReduce");
    job.process(1).last_poll_realtime_ns = stands;
    for (const int rank : {0, 2, 3}) {
      job.Launch(kComm, rank, "AllReduce");
      job.Complete(kComm, rank);
    }
    CommunicatorSnapshot& unseen = job.Of(kComm, 1);
    unseen.oldest_inflight_realtime_ns = stands;
    unseen.last_completion_realtime_ns = stands;
    unseen.launches_completed = 41;
    EXPECT_EQ(HangOf(job), std::nullopt) << i;
  }
}

// It was never started: what has completed is not known, and nothing stands still.
TEST(Hang, APollerThatNeverStartedAccusesNobody) {
  SimulatedJob job = RunningJob();
  job.process(1).poller = PollerState::kNotStarted;
  job.process(1).last_poll_realtime_ns = 0;
  job.Of(kComm, 1).has_heartbeat = false;
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Advance(kHangAfter);
  job.process(1).last_poll_realtime_ns = kStart;
  Hang hang = ExpectHangNow(job, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 2));
  // When it is the one behind, it may have anything in flight.
  job.Launch(kComm, 3, "AllReduce");
  LaunchOn(&job, {0, 2, 3}, "AllGather");
  job.Advance(kHangAfter);
  job.process(1).last_poll_realtime_ns = kStart;
  hang = ExpectHangNow(job, HangVerdict::kUnknown, {});
  EXPECT_THAT(hang.text, HasSubstr("rank 1 (pid 101, GPU 1) has called fewer operations"));
}

// The whole job is stopped, or every driver is stuck: nobody sees anything any longer.
TEST(Hang, AllStoppedWithWorkInFlight) {
  SimulatedJob job = LaunchingJob({0, 1, 2, 3});
  const int64_t stopped = job.now();
  job.Advance(kHangAfter);
  for (int i = 0; i < 4; ++i) job.process(i).last_poll_realtime_ns = stopped;
  ExpectHangNow(job, HangVerdict::kProcessStopped, {0, 1, 2, 3});
}

}  // namespace
}  // namespace nccl_pulse
