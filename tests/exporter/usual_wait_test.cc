#include "exporter/diagnosis/usual_wait.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/hang_job.h"

namespace nccl_pulse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kNineMinutes = 540 * kSecond;

// Rank 0 writes a checkpoint, as it has before; the others wait in the AllReduce behind it.
SimulatedJob Checkpoint() {
  SimulatedJob job = RunningJob();
  for (const int rank : {1, 2, 3}) {
    job.Of(kComm, rank).longest_waits = {{"AllReduce", kNineMinutes}, {"AllGather", 1}};
  }
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  return job;
}

TEST(UsualWait, AsLongAsBefore) {
  SimulatedJob job = Checkpoint();
  job.Advance(10 * 60 * kSecond);
  std::optional<Hang> hang = HangOf(job);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(hang->suspects, ElementsAre(0));
  EXPECT_TRUE(hang->is_usual);
  EXPECT_EQ(hang->longest_wait_before_ns, kNineMinutes);
  EXPECT_THAT(hang->text, HasSubstr(" It has waited up to 9 min here before, and gone on."));
  // Half as long again is no longer usual.
  job.Advance(210 * kSecond);
  EXPECT_TRUE(HangOf(job)->is_usual);
  job.Advance(1);
  hang = HangOf(job);
  EXPECT_FALSE(hang->is_usual);
  EXPECT_EQ(hang->longest_wait_before_ns, kNineMinutes);
  EXPECT_THAT(hang->text, Not(HasSubstr("before")));
}

TEST(UsualWait, WhoNeverHadToWaitWaitsForAnotherOne) {
  SimulatedJob job = Checkpoint();
  job.Complete(kComm, 2);
  job.Of(kComm, 2).calls = job.Of(kComm, 0).calls;  // now it is rank 2 that does not come,
  job.Launch(kComm, 0, "AllReduce");                // and rank 0 waits, too
  job.Advance(60 * kSecond);
  ASSERT_TRUE(HangOf(job));
  EXPECT_THAT(HangOf(job)->suspects, ElementsAre(2));
  EXPECT_FALSE(HangOf(job)->is_usual);
}

TEST(UsualWait, OfTheSameOperationOnly) {
  SimulatedJob job = RunningJob();
  for (const int rank : {1, 2, 3})
    job.Of(kComm, rank).longest_waits = {{"AllGather", kNineMinutes}};
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  job.Advance(60 * kSecond);
  ASSERT_TRUE(HangOf(job));
  EXPECT_FALSE(HangOf(job)->is_usual);
}

TEST(UsualWait, ShortWaitsAreNoMeasure) {
  SimulatedJob job = RunningJob();
  for (const int rank : {1, 2, 3}) {
    job.Of(kComm, rank).longest_waits = {{"AllReduce", kLeastLongWaitNs - 1}};
  }
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  job.Advance(kHangAfter);
  ASSERT_TRUE(HangOf(job));
  EXPECT_FALSE(HangOf(job)->is_usual);
}

// What cannot end well has no measure in the past.
TEST(UsualWait, NeverOfWhatCannotEnd) {
  SimulatedJob gone = Checkpoint();
  gone.process(0).end = ProcessEnd::kLost;
  gone.Advance(60 * kSecond);
  EXPECT_EQ(HangOf(gone)->verdict, HangVerdict::kProcessGone);
  EXPECT_FALSE(HangOf(gone)->is_usual);
  SimulatedJob ended = Checkpoint();
  ended.Of(kComm, 0).finalized = true;
  ended.Advance(60 * kSecond);
  EXPECT_EQ(HangOf(ended)->verdict, HangVerdict::kRankNotCalled);
  EXPECT_FALSE(HangOf(ended)->is_usual);
  SimulatedJob other = Checkpoint();
  other.Launch(kComm, 0, "AllGather");
  other.Of(kComm, 0).longest_waits = {{"AllGather", kNineMinutes}};
  other.Advance(60 * kSecond);
  EXPECT_EQ(HangOf(other)->verdict, HangVerdict::kMismatched);
  EXPECT_FALSE(HangOf(other)->is_usual);
}

}  // namespace
}  // namespace nccl_pulse
