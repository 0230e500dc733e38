// The verdicts on made-up jobs with something wrong, or nothing.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "bench/jobs/families.h"
#include "bench/jobs/scenario.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

constexpr int64_t kSecond = 1000000000;

// Some of what `bench/jobs:verdicts` does by the thousand.
class MadeUpJob : public testing::TestWithParam<std::string> {};

TEST_P(MadeUpJob, IsJudgedRightly) {
  constexpr uint64_t kJobs = 8;
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    const Scenario scenario = MakeScenario(GetParam(), seed);
    const Judged judged = Judge(scenario);
    EXPECT_EQ(judged.outcome, Outcome::kRight)
        << "seed " << seed << ": " << OutcomeName(judged.outcome) << ": " << judged.said << "\n"
        << judged.graph;
  }
}

// GPUs of a pipeline stand behind the pause in another order than the time before.
TEST(MadeUpPause, WhoWaitsBehindItIsUsual) {
  for (const uint64_t seed : {1330u, 2374u}) {
    const Judged judged = Judge(MakeScenario("checkpoint, as before", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << "seed " << seed << ": " << judged.said;
  }
}

// A GPU has not begun what others wait in for more than ten seconds, and works on.
TEST(MadeUpInput, WhoseGpuComesToALaunchIsNotNamed) {
  const Judged judged = Judge(MakeScenario("input that comes late, now and then", 100948));
  EXPECT_EQ(judged.outcome, Outcome::kRight) << judged.said;
}

// The GPU of the process that a driver call holds up also waits for a rank that is not seen.
TEST(MadeUpDriverCall, IsNamedBesideRanksThatAreNotSeen) {
  for (const uint64_t seed : {11000040u, 11000163u, 11000186u, 11000284u}) {
    const Judged judged = Judge(MakeScenario("driver call", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << "seed " << seed << ": " << judged.said;
  }
}

std::vector<std::string> HangsAndHealthy() {
  std::vector<std::string> names;
  for (const std::string& name : FaultNames()) {
    const bool is_slow = name.find("straggler") != name.npos || name.find("slow node") == 0;
    // Minutes of those that go on for long take a second: MadeUpPast has some.
    const bool is_long = MakeScenario(name, 0).options.page_every_ns != 0;
    if (!is_slow && !is_long && FindFamily(name) == nullptr) names.push_back(name);
  }
  return names;
}

// A watcher that starts now says what one said that asked a moment or some seconds before, or in another order.
class MadeUpHang : public testing::TestWithParam<std::string> {};

TEST_P(MadeUpHang, HasTheSameLabelsAtEachLook) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::string first;
    for (const std::string& labels : LabelsOverLooks(MakeScenario(GetParam(), seed))) {
      if (first.empty()) first = labels;
      // A wait may become longer than is usual meanwhile.
      if (!labels.empty()) {
        EXPECT_EQ(labels, first) << "seed " << seed;
      }
    }
  }
}

std::string TestName(std::string name) {
  for (char& c : name) c = absl::ascii_isalnum(c) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Faults, MadeUpJob, testing::ValuesIn(HangsAndHealthy()),
                         [](const auto& info) { return TestName(info.param); });

std::vector<std::string> Hangs() {
  std::vector<std::string> names;
  for (const std::string& name : HangsAndHealthy()) {
    // Slow jobs run for minutes, and have no labels of hangs.
    if (MakeScenario(name, 0).options.run_on_ns == 0) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Faults, MadeUpHang, testing::ValuesIn(Hangs()),
                         [](const auto& info) { return TestName(info.param); });

class MadeUpFamily : public testing::TestWithParam<Family> {};

TEST_P(MadeUpFamily, IsJudgedRightlyAsOftenAsItWas) {
  constexpr uint64_t kJobs = 8;
  int right = 0;
  std::string wrong;
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    const Judged judged = Judge(MakeFamily(GetParam(), seed));
    right += static_cast<int>(judged.outcome == Outcome::kRight);
    if (judged.outcome == Outcome::kRight) continue;
    absl::StrAppend(&wrong, "seed ", seed, ": ", OutcomeName(judged.outcome), ": ", judged.said,
                    "\n");
  }
  EXPECT_GE(right, GetParam().least_right) << wrong;
}

INSTANTIATE_TEST_SUITE_P(Families, MadeUpFamily, testing::ValuesIn(Families()),
                         [](const auto& info) { return TestName(info.param.name); });

// Nor is a neighbour that waits for it named by the endpoint of its node.
TEST(MadeUpStraggler, IsNamedAloneOnItsNode) {
  for (const char* fault :
       {"straggler at the host, its node alone", "straggler at the GPU, its node alone"}) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const Judged judged = Judge(MakeScenario(fault, seed));
      EXPECT_EQ(judged.outcome, Outcome::kRight) << fault << " " << seed << ": " << judged.said;
    }
  }
}

struct Told {
  int right = 0, all = 0;
};
Told TellSlow(const char* fault, bool (*is_asked)(const JobLayout&)) {
  Told told;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Scenario scenario = MakeScenario(fault, seed);
    if (!is_asked(scenario.layout)) continue;
    const Judged judged = Judge(scenario);
    EXPECT_NE(judged.outcome, Outcome::kWrong) << fault << " " << seed << judged.said;
    told.right += static_cast<int>(judged.outcome == Outcome::kRight);
    ++told.all;
  }
  return told;
}

// Nobody else is named instead of who is slow, and mostly nobody beside; with pipelines and
// experts, too.
TEST(MadeUpStraggler, IsNamedAlone) {
  for (const char* fault : {"straggler at the host", "straggler at the GPU"}) {
    const Told told = TellSlow(fault, [](const JobLayout&) { return true; });
    EXPECT_GE(told.right, told.all - 1) << fault;
  }
  // A stage that fills its nodes has nobody to be compared with.
  const Told told = TellSlow("slow node", [](const JobLayout& layout) {
    return layout.pipeline == 1 || layout.tensor > 1;
  });
  EXPECT_GE(told.right, told.all - 2);
}

// Its tensor-parallel peers wait for it, their pipelines for them, and in these the ranks of other
// stages and nodes come late into what they share with other replicas.
TEST(MadeUpStraggler, PipelinesOfItsPeersAreNot) {
  for (const uint64_t seed : {147u, 174u, 255u, 278u}) {
    const Judged judged = Judge(MakeScenario("straggler at the GPU", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << seed << ": " << judged.said;
  }
  // One of another stage is nearly as late, but not among its tensor-parallel peers.
  Scenario scenario = MakeScenario("straggler at the host", 582);
  scenario.options.asked_ns *= 4;
  const Judged judged = Judge(scenario);
  EXPECT_EQ(judged.outcome, Outcome::kRight) << judged.said;
}

// Half of the hosts are late, or the host is late in the first call of a step alone. In the mean of all calls that
// is no chance; in the last rounds it might be.
TEST(MadeUpStraggler, IsNamedByTheMeanWhereTheLastRoundsAreTooFew) {
  for (const auto& [fault, seed] :
       {std::pair("two slow nodes", 23000004u), std::pair("two slow nodes", 23000039u),
        std::pair("slow node", 23000028u), std::pair("slow node, many layers", 23000034u),
        std::pair("sequences of unequal length", 31000054u)}) {
    const Judged judged = Judge(MakeScenario(fault, seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << fault << " " << seed << ": " << judged.said;
  }
}

// The last calls that two nodes know are of different parts of a step, so they have none in common.
TEST(MadeUpStraggler, IsNamedWhereEndpointsKnowNoLastCallsInCommon) {
  for (const uint64_t seed : {27u, 40u, 48u}) {
    const Judged judged = Judge(MakeScenario("straggler at the GPU, many layers", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << seed << ": " << judged.said;
  }
}

// Long waits for input that are over are most of what its ranks are late by in the mean, or one wait is most
// of the mean of a few rounds.
TEST(MadeUpStraggler, NotWhoOnceWaitedForInput) {
  for (const uint64_t seed : {939u, 70082u, 71405u}) {
    const Judged judged = Judge(MakeScenario("input that comes late, now and then", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << seed << ": " << judged.said;
  }
}

// What is missed above has run for too short a time to tell.
TEST(MadeUpStraggler, IsNamedInTime) {
  for (const char* fault : {"straggler at the host", "straggler at the GPU",
                            "straggler at the GPU, many layers", "slow node, many layers"}) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Scenario scenario = MakeScenario(fault, seed);
      scenario.options.asked_ns *= 4;
      const Judged judged = Judge(scenario);
      EXPECT_EQ(judged.outcome, Outcome::kRight) << fault << " " << seed << ": " << judged.said;
    }
  }
}

// It waits in Recv for a stage that is not seen to be late: too few of that one's calls are common.
TEST(MadeUpStraggler, NotWhoWaitsForOneThatIsNotSeen) {
  for (const auto& [fault, seed] :
       {std::pair("straggler at the GPU", 786u), std::pair("straggler at the host", 962u)}) {
    const Judged judged = Judge(MakeScenario(fault, seed));
    EXPECT_EQ(judged.outcome, Outcome::kNothing) << fault << " " << seed << ": " << judged.said;
  }
}

// They come late because they wait for it where too few calls are known to name it.
TEST(MadeUpStraggler, ItsTensorParallelPeersAreNot) {
  for (const uint64_t seed : {70u, 123u, 178u, 193u}) {
    const Judged judged = Judge(MakeScenario("straggler at the host", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << seed << ": " << judged.said;
  }
}

// Its last calls are of half a step or so; those of the seconds before, and that it is late in the
// mean of all steps, tell it from who has the longest sequences (MadeUpJob.IsJudgedRightly has
// those).
TEST(MadeUpStraggler, IsNamedAmongManyLayers) {
  const Told told =
      TellSlow("straggler at the GPU, many layers", [](const JobLayout&) { return true; });
  EXPECT_EQ(told.all, 24);
  EXPECT_GE(told.right, told.all - 2);
}

JobLayout PipelineOfFour() {
  JobLayout layout;
  layout.pipeline = 4;
  layout.data = 8;
  layout.microbatches = 4;
  layout.slowdown = 16;
  return layout;
}

// Its stage's data-parallel ranks wait for it at the end of the step, and those of the other stages
// for the ranks that have waited for it in Recv.
TEST(MadeUpStraggler, TheOtherStagesOfItsPipelineAreNot) {
  for (const int rank : {1, 12, 19, 30}) {
    Scenario scenario;
    scenario.layout = PipelineOfFour();
    scenario.groups = GroupsOf(scenario.layout, 1);
    scenario.options.fault = Fault::kSlowGpu;
    scenario.options.rank = rank;
    scenario.options.asked_ns = 40 * kSecond;
    scenario.answers.assign(static_cast<std::size_t>(scenario.layout.nodes()), Answer::kNow);
    scenario.culprits = {rank};
    const Judged judged = Judge(scenario);
    EXPECT_EQ(judged.outcome, Outcome::kRight) << "rank " << rank << ": " << judged.said;
  }
}

Scenario StageThatFillsANode(Fault fault) {
  Scenario scenario;
  scenario.layout = PipelineOfFour();
  scenario.groups = GroupsOf(scenario.layout, 1);
  scenario.options.fault = fault;
  scenario.options.rank = 11;
  scenario.options.asked_ns = 40 * kSecond;
  scenario.answers.assign(static_cast<std::size_t>(scenario.layout.nodes()), Answer::kNow);
  for (int rank = 8; rank < 16; ++rank) scenario.culprits.insert(rank);
  return scenario;
}

// A stage that has more to do than the others, on all of its ranks, is how the job is made. It is
// said to be slow or to have more to do, and nobody is named.
TEST(MadeUpStraggler, NotAStageThatDoesMore) {
  const Judged judged = Judge(StageThatFillsANode(Fault::kSlowNode));
  EXPECT_EQ(judged.outcome, Outcome::kNothing) << judged.said;
  EXPECT_THAT(judged.said, HasSubstr("doubt: The ranks of node-001 wait less for others"));
  EXPECT_THAT(judged.said, HasSubstr("slow, or its pipeline stage has more work"));
  // All stages do the same.
  const Judged healthy = Judge(StageThatFillsANode(Fault::kNone));
  EXPECT_EQ(healthy.outcome, Outcome::kRight);
  EXPECT_EQ(healthy.said, "ok: No hang and no straggler is suspected.");
}

// Endpoints that were scraped before know that it did not do more then.
TEST(MadeUpOnset, AStageThatBecameSlower) {
  Scenario scenario = StageThatFillsANode(Fault::kSlowNode);
  scenario.options.page_every_ns = 10 * kSecond;
  scenario.options.fault_ns = 180 * kSecond;
  scenario.options.asked_ns = 360 * kSecond;
  const Judged judged = Judge(scenario);
  EXPECT_EQ(judged.outcome, Outcome::kRight) << judged.said;
  EXPECT_THAT(judged.said, HasSubstr("All 8 ranks of node-001 have become slower"));
  // From the beginning on: as without a past.
  scenario.options.fault_ns = 0;
  EXPECT_EQ(Judge(scenario).outcome, Outcome::kNothing);
}

// Two stages are on each node: work that one of them is given is not the node's.
TEST(MadeUpOnset, AStageThatIsGivenMoreWorkBesideAnother) {
  Scenario scenario = StageThatFillsANode(Fault::kStageGrows);
  scenario.layout.data = 4;
  scenario.groups = GroupsOf(scenario.layout, 1);
  scenario.options.page_every_ns = 10 * kSecond;
  scenario.options.change_step = 180;
  scenario.options.asked_ns = 360 * kSecond;
  const Judged judged = Judge(scenario);
  EXPECT_EQ(judged.outcome, Outcome::kRight) << judged.said;
}

class MadeUpPast : public testing::TestWithParam<std::string> {};

TEST_P(MadeUpPast, IsHealthy) {
  Scenario scenario = MakeScenario(GetParam(), 0);
  // A stage is a node, so that changes of a stage are seen as changes of a node.
  scenario.layout = PipelineOfFour();
  scenario.groups = GroupsOf(scenario.layout, 1);
  scenario.answers.assign(static_cast<std::size_t>(scenario.layout.nodes()), Answer::kNow);
  scenario.options.rank = 11;
  scenario.options.sampling_exponent = 0;
  scenario.options.change_step = 180;
  scenario.options.change_steps = 60;
  scenario.options.asked_ns = 360 * kSecond;
  const Judged judged = Judge(scenario);
  EXPECT_EQ(judged.outcome, Outcome::kRight) << judged.said;
}

INSTANTIATE_TEST_SUITE_P(Faults, MadeUpPast,
                         testing::Values("healthy, for long", "sequences that become longer",
                                         "stages with unequal work, for long",
                                         "training and evaluation by turns",
                                         "a node that pauses once"),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace nccl_pulse
