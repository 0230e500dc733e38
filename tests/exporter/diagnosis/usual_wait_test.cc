#include "exporter/diagnosis/waits/usual_wait.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kNineMinutes = 540 * kSecond;

// Rank 0 writes a checkpoint, as it has before; the others wait in the AllReduce behind it.
SimulatedJob Checkpoint() {
  SimulatedJob job = RunningJob();
  for (const int rank : {1, 2, 3}) {
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", kNineMinutes),
                                         WaitedBefore("AllGather", 1)};
  }
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  return job;
}

using UsualWait = RunningJobTest;

TEST_F(UsualWait, AsLongAsBefore) {
  job = Checkpoint();
  job.Advance(10 * 60 * kSecond);
  Hang hang = ExpectHangNow(job, HangVerdict::kRankNotCalled, {0});
  EXPECT_TRUE(hang.is_usual);
  EXPECT_EQ(hang.longest_wait_before_ns, kNineMinutes);
  EXPECT_THAT(hang.text, HasSubstr(" It has waited up to 9 min here before, and then resumed."));
  // Half as long again is no longer usual.
  job.Advance(210 * kSecond);
  EXPECT_TRUE(HangOf(job)->is_usual);
  job.Advance(1);
  hang = HangNow(job);
  EXPECT_FALSE(hang.is_usual);
  EXPECT_EQ(hang.longest_wait_before_ns, kNineMinutes);
  EXPECT_THAT(hang.text, Not(HasSubstr("before")));
}

TEST_F(UsualWait, WhoNeverHadToWaitWaitsForAnotherOne) {
  job = Checkpoint();
  job.Complete(kComm, 2);
  job.Of(kComm, 2).calls = job.Of(kComm, 0).calls;  // now it is rank 2 that does not come,
  job.Launch(kComm, 0, "AllReduce");                // and rank 0 waits, too
  job.Advance(60 * kSecond);
  EXPECT_FALSE(ExpectHangNow(job, HangVerdict::kRankNotCalled, {2}).is_usual);
}

TEST_F(UsualWait, OfTheSameOperationOnly) {
  for (const int rank : {1, 2, 3})
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllGather", kNineMinutes)};
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  job.Advance(60 * kSecond);
  EXPECT_FALSE(HangNow(job).is_usual);
}

// One long wait at the start of a job: of a small AllReduce, and long ago.
TEST_F(UsualWait, OfTheSameSizeAndWhileItCounts) {
  const auto waited = [this](int size_class, int64_t until) {
    for (const int rank : {1, 2, 3}) {
      job.Of(kComm, rank).longest_waits = {{"AllReduce", size_class, kNineMinutes, until}};
    }
  };
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  const int64_t since = job.now();
  job.Advance(60 * kSecond);
  waited(4, since);
  EXPECT_TRUE(HangNow(job).is_usual) << "it counted when this wait began";
  waited(4, since - 1);
  EXPECT_FALSE(HangOf(job)->is_usual);
  waited(0, since);
  EXPECT_FALSE(HangOf(job)->is_usual);
}

TEST_F(UsualWait, ShortWaitsAreNoMeasure) {
  for (const int rank : {1, 2, 3}) {
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", kLeastLongWaitNs - 1)};
  }
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  job.Advance(kHangAfter);
  EXPECT_FALSE(HangNow(job).is_usual);
}

// What cannot end well has no measure in the past.
TEST_F(UsualWait, NeverOfWhatCannotEnd) {
  SimulatedJob gone = Checkpoint();
  gone.process(0).end = ProcessEnd::kLost;
  gone.Advance(60 * kSecond);
  EXPECT_FALSE(ExpectHangNow(gone, HangVerdict::kProcessGone, {0}).is_usual);
  SimulatedJob ended = Checkpoint();
  ended.Of(kComm, 0).finalized = true;
  ended.Advance(60 * kSecond);
  EXPECT_FALSE(ExpectHangNow(ended, HangVerdict::kRankNotCalled, {0}).is_usual);
  SimulatedJob other = Checkpoint();
  other.Launch(kComm, 0, "AllGather");
  other.Of(kComm, 0).longest_waits = {WaitedBefore("AllGather", kNineMinutes)};
  other.Advance(60 * kSecond);
  EXPECT_FALSE(ExpectHangNow(other, HangVerdict::kMismatched, {0}).is_usual);
}

// Process 3 writes a checkpoint, and 2 waits for it in kFirst, as before. 1 waits for 2, and 0 for
// 1, as they did not before.
class BehindAUsualWait : public testing::Test {
 protected:
  static constexpr uint64_t kFirst = 1, kMiddle = 2, kThird = 3;

  BehindAUsualWait() : job_(4) {
    job_.AddCommunicator(kThird, {0, 1});
    job_.AddCommunicator(kMiddle, {1, 2});
    job_.AddCommunicator(kFirst, {2, 3});
    job_.Of(kFirst, 0).longest_waits = {WaitedBefore("AllReduce", kNineMinutes)};
    for (const uint64_t id : {kFirst, kMiddle, kThird}) job_.Launch(id, 0, "AllReduce");
    job_.Advance(60 * kSecond);
  }

  SimulatedJob job_;
};

TEST_F(BehindAUsualWait, IsUsual) {
  for (const uint64_t id : {kMiddle, kThird}) {
    const Hang hang = ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {1}, id);
    EXPECT_TRUE(hang.is_usual);
    EXPECT_EQ(hang.longest_wait_before_ns, 0u);
    EXPECT_THAT(hang.text, HasSubstr(" meanwhile: look there first. The wait there is expected."));
  }
  // As long as that one is.
  job_.Advance(13 * 60 * kSecond);
  for (const uint64_t id : {kFirst, kMiddle, kThird}) EXPECT_FALSE(HangOf(job_, id)->is_usual);
}

// Of two that do not come one waits where that is usual, and the other one where it is not.
TEST_F(UsualWait, BehindTwoWaitsOfWhichOneIsUsual) {
  job = SimulatedJob(5);
  job.AddCommunicator(1, {1, 3});
  job.AddCommunicator(2, {2, 4});
  job.AddCommunicator(kComm, {0, 1, 2});
  for (const uint64_t id : {uint64_t{1}, uint64_t{2}, kComm}) job.Launch(id, 0, "AllReduce");
  job.Of(1, 0).longest_waits = {WaitedBefore("AllReduce", kNineMinutes)};
  job.Advance(60 * kSecond);
  EXPECT_FALSE(ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {1, 2}).is_usual);
  job.Of(2, 0).longest_waits = {WaitedBefore("AllReduce", kNineMinutes)};
  EXPECT_TRUE(HangOf(job)->is_usual);
}

}  // namespace
}  // namespace nccl_pulse
