// Who of a job has become slower, by what each rank did before.
#include <cstdint>
#include <functional>
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
std::vector<PaceWindow> Slower(double busy_now, double step_now = 1.3, double error = 0.01,
                               double busy_before = 0.5) {
  return {Window(1, busy_before, error), Window(step_now, busy_now, error)};
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

TEST_F(SlowedTest, Nobody) {
  const struct {
    const char* why;
    std::function<std::vector<PaceWindow>(bool)> pace;  // of a rank of node-2, or of another node
  } kAll[] = {
      {"all wait more: the network", [](bool) { return Slower(0.5); }},
      {"all do more: longer sequences", [](bool) { return Slower(0.65); }},
      {"a step takes hardly longer", [](bool it) { return Slower(it ? 0.8 : 0.5, 1.01); }},
      {"it was always slower",
       [](bool it) { return it ? Slower(0.9, 1.3, 0.01, 0.9) : Slower(0.5); }},
      {"it may be chance", [](bool it) { return Slower(it ? 0.8 : 0.5, 1.3, 0.08); }},
      // One stage had three times as much to do before: it does most more, and is not slower.
      {"all work grew by 30 %",
       [](bool it) {
         return it ? Slower(1.3 * 0.9, 1.3, 0.01, 0.9) : Slower(1.3 * 0.3, 1.3, 0.01, 0.3);
       }},
      {"collectives alone are training or evaluation",
       [](bool it) {
         std::vector<PaceWindow> pace = Slower(it ? 0.8 : 0.5);
         for (PaceWindow& window : pace) window.others = 0;
         return pace;
       }},
      {"hosts remember different things: one of an hour ago, another of yesterday",
       [](bool it) { return it ? Slower(0.8, 1.9) : Slower(0.5); }},
  };
  for (const auto& each : kAll) {
    for (int i = 0; i < 8; ++i) job_.process(i).pace = each.pace(i / 2 == 2);
    EXPECT_THAT(Judge(), IsEmpty()) << each.why;
  }
  for (int i = 0; i < 8; ++i) job_.process(i).pace = Slower(i / 2 % 2 == 1 ? 0.8 : 0.5);
  EXPECT_THAT(Judge(), IsEmpty()) << "two hosts";
}

// One stage had more to do than the others before, and alone has become slower.
TEST_F(SlowedTest, TheHostThatHadMostToDoBefore) {
  for (int i = 0; i < 8; ++i) {
    job_.process(i).pace = i / 2 == 2 ? Slower(1.1, 1.3, 0.01, 0.8) : Slower(0.4, 1.3, 0.01, 0.4);
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

// What an endpoint may send: nothing of it is believed to be a number.
TEST_F(SlowedTest, HostileWindows) {
  for (const uint64_t number : {uint64_t{0}, UINT64_MAX}) {
    const PaceWindow window{number, number, number, number, number};
    for (int i = 0; i < 8; ++i) {
      job_.process(i).pace = {window, window};
    }
    EXPECT_THAT(Judge(), IsEmpty());
  }
}

}  // namespace
}  // namespace nccl_pulse
