// Who of a job has become slower, by what each rank did before.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/job_verdict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kSteps = 100;
constexpr uint64_t kPipelines = 10, kWorld = 20;

PaceWindow Window(double step_seconds, double busy_seconds, double error_seconds = 0.01) {
  PaceWindow window;
  window.collectives = kSteps;
  window.others = 4 * kSteps;
  window.length_ms = static_cast<uint64_t>(step_seconds * 1e3) * kSteps;
  window.inside_ms = static_cast<uint64_t>((step_seconds - busy_seconds) * 1e3) * kSteps;
  window.error_ms = static_cast<uint64_t>(error_seconds * 1e3) * kSteps;
  return window;
}

// Each step took 1 s, and takes 1.3 s now; each rank was busy for 0.5 s of it, and is for so much
// now.
std::vector<PaceWindow> Slower(double busy_now, double step_now = 1.3, double error = 0.01) {
  const PaceWindow now = Window(step_now, busy_now, error);
  return {Window(1, 0.5, error), now, now, now, now};
}

// Four nodes of two GPUs, a stage on each.
class SlowedTest : public testing::Test {
 protected:
  SlowedTest() : job_(8) {
    for (int i = 0; i < 8; ++i) {
      job_.process(i).hostname = "node-" + std::to_string(i / 2);
      job_.process(i).pace = Slower(0.5);
    }
    job_.AddCommunicator(kPipelines, {0, 2, 4, 6}, 4, 4);
    job_.AddCommunicator(kPipelines + 1, {1, 3, 5, 7}, 4, 4);
    job_.AddCommunicator(kWorld, {0, 1, 2, 3, 4, 5, 6, 7}, 8, 4);
  }

  std::vector<JobStraggler> Judge() {
    set_ = job_.Set();
    return JudgeJob(set_, Diagnosis().Update(set_, job_.now()), job_.now()).stragglers;
  }

  SimulatedJob job_;
  SnapshotSet set_;  // what is returned points into it
};

TEST_F(SlowedTest, TheHostWhoseRanksDoNotWaitMore) {
  for (const int i : {4, 5}) job_.process(i).pace = Slower(0.8);
  const std::vector<JobStraggler> stragglers = Judge();
  ASSERT_THAT(stragglers, SizeIs(1));
  EXPECT_TRUE(stragglers[0].is_whole_host);
  ASSERT_THAT(stragglers[0].ranks, SizeIs(2));
  EXPECT_EQ(stragglers[0].ranks[0].process->pid, 104);
  EXPECT_EQ(stragglers[0].ranks[1].process->pid, 105);
  EXPECT_THAT(stragglers[0].text, HasSubstr("All 2 ranks of node-2 have become slower"));
  EXPECT_THAT(stragglers[0].text, HasSubstr("30 % longer"));
}

TEST_F(SlowedTest, OneRank) {
  job_.process(5).pace = Slower(0.8);
  const std::vector<JobStraggler> stragglers = Judge();
  ASSERT_THAT(stragglers, SizeIs(1));
  ASSERT_THAT(stragglers[0].ranks, SizeIs(1));
  EXPECT_EQ(stragglers[0].ranks[0].process->pid, 105);
  EXPECT_FALSE(stragglers[0].is_whole_host);
}

TEST_F(SlowedTest, NobodyWhereAllWaitMoreOrAllDoMore) {
  EXPECT_THAT(Judge(), IsEmpty());  // the network
  for (int i = 0; i < 8; ++i) job_.process(i).pace = Slower(0.65);
  EXPECT_THAT(Judge(), IsEmpty());  // longer sequences
}

TEST_F(SlowedTest, NobodyOfTwoHosts) {
  for (const int i : {2, 3, 6, 7}) job_.process(i).pace = Slower(0.8);
  EXPECT_THAT(Judge(), IsEmpty());
}

// A step that takes hardly longer says nothing, and so does what was different all the time.
TEST_F(SlowedTest, NobodyWhoWasAlwaysSlower) {
  for (int i = 0; i < 8; ++i) job_.process(i).pace = Slower(0.5, 1.01);
  for (const int i : {4, 5}) job_.process(i).pace = Slower(0.8, 1.01);
  EXPECT_THAT(Judge(), IsEmpty());
  for (int i = 0; i < 8; ++i) job_.process(i).pace = Slower(0.5);
  for (const int i : {4, 5}) {
    const PaceWindow now = Window(1.3, 0.9);
    job_.process(i).pace = {Window(1, 0.9), now, now, now, now};
  }
  EXPECT_THAT(Judge(), IsEmpty());
}

TEST_F(SlowedTest, NobodyWhereItMayBeChance) {
  for (int i = 0; i < 8; ++i) job_.process(i).pace = Slower(0.5, 1.3, 0.08);
  for (const int i : {4, 5}) job_.process(i).pace = Slower(0.8, 1.3, 0.08);
  EXPECT_THAT(Judge(), IsEmpty());
}

// A pause of that host: the last window is as fast as before.
TEST_F(SlowedTest, NobodyForAPause) {
  for (int i = 0; i < 8; ++i) {
    job_.process(i).pace = Slower(i / 2 == 2 ? 0.8 : 0.5);
    job_.process(i).pace.back() = Window(1, 0.5);
  }
  EXPECT_THAT(Judge(), IsEmpty());
}

// All work grew by 30 %, and one stage had three times as much to do before: it does most more, and
// is not slower than the others.
TEST_F(SlowedTest, NobodyWhereAllWorkGrowsAlike) {
  for (int i = 0; i < 8; ++i) {
    const double busy = i / 2 == 2 ? 0.9 : 0.3;
    const PaceWindow now = Window(1.3, 1.3 * busy);
    job_.process(i).pace = {Window(1, busy), now, now, now, now};
  }
  EXPECT_THAT(Judge(), IsEmpty());
}

// That stage alone has become slower.
TEST_F(SlowedTest, TheHostThatHadMostToDoBefore) {
  for (int i = 0; i < 8; ++i) {
    const double busy = i / 2 == 2 ? 0.8 : 0.4;
    const PaceWindow now = Window(1.3, i / 2 == 2 ? 1.1 : busy);
    job_.process(i).pace = {Window(1, busy), now, now, now, now};
  }
  ASSERT_THAT(Judge(), SizeIs(1));
  EXPECT_EQ(Judge()[0].ranks[0].process->hostname, "node-2");
}

// An endpoint that began anew does not know: then nothing is known of "the others".
TEST_F(SlowedTest, WhoIsNotKnown) {
  for (const int i : {4, 5}) job_.process(i).pace = Slower(0.8);
  EXPECT_THAT(Judge(), SizeIs(1));
  for (const int i : {0, 5}) {
    const std::vector<PaceWindow> pace = std::exchange(job_.process(i).pace, {});
    EXPECT_THAT(Judge(), IsEmpty());
    job_.process(i).pace = pace;
  }
  EXPECT_THAT(Judge(), SizeIs(1));
}

// A rank that no endpoint speaks for may have become slower, too.
TEST_F(SlowedTest, NobodyWhereARankIsNotSeen) {
  for (const int i : {4, 5}) job_.process(i).pace = Slower(0.8);
  job_.AddCommunicator(kWorld + 1, {0, 1, 2, 3, 4, 5, 6, 7}, 9, 5);
  EXPECT_THAT(Judge(), IsEmpty());
}

// Collectives alone are training or evaluation: who knows.
TEST_F(SlowedTest, NobodyWithoutSendAndRecv) {
  for (int i = 0; i < 8; ++i) {
    job_.process(i).pace = Slower(i / 2 == 2 ? 0.8 : 0.5);
    for (PaceWindow& window : job_.process(i).pace) window.others = 0;
  }
  EXPECT_THAT(Judge(), IsEmpty());
}

// Hosts remember different things: one of an hour ago, another of yesterday.
TEST_F(SlowedTest, NobodyWithAnotherPast) {
  for (const int i : {4, 5}) job_.process(i).pace = Slower(0.8, 1.9);
  EXPECT_THAT(Judge(), IsEmpty());
}

// What an endpoint may send: nothing of it is believed to be a number.
TEST_F(SlowedTest, HostileWindows) {
  for (const uint64_t number : {uint64_t{0}, UINT64_MAX}) {
    const PaceWindow window{number, number, number, number, number};
    for (int i = 0; i < 8; ++i) {
      job_.process(i).pace = {window, window, window, window, window};
    }
    EXPECT_THAT(Judge(), IsEmpty());
  }
}

}  // namespace
}  // namespace nccl_pulse
