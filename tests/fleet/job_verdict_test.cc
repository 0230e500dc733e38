// One verdict over the ranks of many nodes.
#include "exporter/diagnosis/job_verdict.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "bench/jobs/scenario.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/snapshot_union.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/hang_job.h"

namespace nccl_pulse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Seen {
  SnapshotSet set;
  DiagnosisResult diagnosis;
  JobVerdict verdict;
};

Seen Look(SnapshotSet set, int64_t now) {
  Seen seen{std::move(set), {}, {}};
  seen.diagnosis = Diagnosis().Update(seen.set, now);
  seen.verdict = JudgeJob(seen.set, seen.diagnosis, now);
  return seen;
}

// The processes of a node, as its endpoint tells of them.
SnapshotMessage Endpoint(SimulatedJob* job, const std::vector<int>& processes) {
  SnapshotSet set;
  for (const int process : processes) set.processes.push_back(job->process(process));
  SnapshotMessage message;
  std::string error;
  EXPECT_TRUE(ReadSnapshots(WriteSnapshots(set, job->now(), kHangAfter), job->now(), 1 << 26,
                            &message, &error));
  return message;
}

SnapshotSet AllOf(SimulatedJob* job, const std::vector<std::vector<int>>& nodes,
                  const JobFilter& filter = {}) {
  SnapshotUnion all(filter);
  for (const std::vector<int>& node : nodes) all.Add(Endpoint(job, node));
  return all.Take(kHangAfter);
}

const CommunicatorDiagnosis& Of(const Seen& seen, uint64_t comm_id) {
  return *std::find_if(seen.diagnosis.begin(), seen.diagnosis.end(),
                       [comm_id](const auto& each) { return each.comm_id == comm_id; });
}

constexpr uint64_t kTensor = 1, kTensor2 = 2, kData = 3, kData2 = 4;

// Two nodes of two GPUs: tensor parallel within, data parallel across.
SimulatedJob TwoNodes() {
  SimulatedJob job(4);
  for (int i = 0; i < 4; ++i) job.process(i).hostname = i < 2 ? "node-a" : "node-b";
  job.AddCommunicator(kTensor, {0, 1});
  job.AddCommunicator(kTensor2, {2, 3});
  job.AddCommunicator(kData, {0, 2}, 2, 2);
  job.AddCommunicator(kData2, {1, 3}, 2, 2);
  return job;
}

// Alone the waiting node cannot say for whom, and the culprit's sees no wait.
TEST(JobVerdict, OneRankOnEachOfTwoNodes) {
  SimulatedJob job(2);
  job.process(0).hostname = "node-a";
  job.process(1).hostname = "node-b";
  job.AddCommunicator(kData, {0, 1}, 2, 2);
  job.Launch(kData, 0, "AllReduce");
  job.Advance(kHangAfter);
  const Seen alone = Look(SnapshotSet({job.process(0)}), job.now());
  EXPECT_EQ(Of(alone, kData).hang->verdict, HangVerdict::kNoProgress);
  const Seen both = Look(AllOf(&job, {{0}, {1}}), job.now());
  ASSERT_EQ(both.verdict.roots.size(), 1u);
  const JobRoot& root = both.verdict.roots[0];
  EXPECT_EQ(root.verdict, HangVerdict::kRankNotCalled);
  ASSERT_EQ(root.ranks.size(), 1u);
  EXPECT_EQ(root.ranks[0].process->hostname, "node-b");
  EXPECT_THAT(root.text, HasSubstr("Rank 1 (node-b, pid 101, GPU 1)"));
}

TEST(JobVerdict, VictimsAreBlockedElsewhere) {
  SimulatedJob job = TwoNodes();
  // Process 3 does not come to its tensor-parallel call; 2 waits for it, 0 and 1 wait for both.
  job.Launch(kTensor2, 0, "AllReduce");
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kData2, 0, "AllReduce");
  job.Advance(kHangAfter);
  const Seen seen = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  EXPECT_EQ(Of(seen, kTensor2).hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_EQ(Of(seen, kData).hang->verdict, HangVerdict::kBlockedElsewhere);
  ASSERT_EQ(seen.verdict.roots.size(), 1u);
  const JobRoot& root = seen.verdict.roots[0];
  ASSERT_EQ(root.ranks.size(), 1u);
  EXPECT_EQ(root.ranks[0].process->pid, 103);
  EXPECT_THAT(root.communicators, ElementsAre(kTensor2, kData2));  // it is the same in both
  EXPECT_EQ(seen.verdict.waits.size(), 3u);
  EXPECT_EQ(seen.verdict.blocked_communicators, 1u);
}

// A usual wait, and one behind it that is older. The one that both wait for comes first.
TEST(JobVerdict, AUsualWaitStandsBeforeWhatWaitsForIt) {
  SimulatedJob job = TwoNodes();
  job.Of(kTensor2, 0).longest_waits = {{"AllReduce", 60 * kSecond}};
  job.Launch(kData, 0, "AllReduce");
  job.Advance(kSecond);
  job.Launch(kTensor2, 0, "AllReduce");
  job.Advance(kHangAfter);
  const Seen seen = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  ASSERT_EQ(seen.verdict.roots.size(), 2u);
  EXPECT_EQ(seen.verdict.roots[0].verdict, HangVerdict::kRankNotCalled);
  EXPECT_EQ(seen.verdict.roots[0].ranks[0].process->pid, 103);
  EXPECT_EQ(seen.verdict.roots[1].verdict, HangVerdict::kBlockedElsewhere);
  for (const JobRoot& root : seen.verdict.roots) EXPECT_TRUE(root.is_usual);
}

// Its node does not answer: its ranks are what is missing, and nobody who waits is named.
TEST(JobVerdict, WhomNobodyHasSeen) {
  SimulatedJob job = TwoNodes();
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kData2, 0, "AllReduce");
  job.Advance(kHangAfter);
  const Seen seen = Look(AllOf(&job, {{0, 1}}), job.now());
  ASSERT_EQ(seen.verdict.roots.size(), 1u);
  const JobRoot& root = seen.verdict.roots[0];
  EXPECT_EQ(root.verdict, HangVerdict::kRankNotSeen);
  EXPECT_THAT(root.communicators, ElementsAre(kData, kData2));
  EXPECT_THAT(root.text, HasSubstr("the endpoints that answered"));
  ASSERT_EQ(root.ranks.size(), 2u);
  for (const JobRank& rank : root.ranks) {
    EXPECT_EQ(rank.process, nullptr);
    EXPECT_EQ(rank.rank, 1);
  }
}

TEST(JobVerdict, CircleOverNodes) {
  SimulatedJob job(2);
  job.AddCommunicator(kData, {0, 1}, 2, 2);
  job.AddCommunicator(kData2, {0, 1}, 2, 2);
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kData2, 1, "AllReduce");
  job.Advance(kHangAfter);
  const Seen seen = Look(AllOf(&job, {{0}, {1}}), job.now());
  ASSERT_EQ(seen.verdict.roots.size(), 1u);
  EXPECT_EQ(seen.verdict.roots[0].verdict, HangVerdict::kCircularWait);
  EXPECT_EQ(seen.verdict.roots[0].ranks.size(), 2u);
}

// Of ranks that call different sizes the fewer are named.
TEST(JobVerdict, TheFewerDiffer) {
  SimulatedJob job = RunningJob(4, 4);
  LaunchOn(&job, {0, 1, 3}, "AllReduce", 4);
  LaunchOn(&job, {2}, "AllReduce", 6);
  job.Advance(kHangAfter);
  const Seen seen = Look(AllOf(&job, {{0}, {1}, {2}, {3}}), job.now());
  ASSERT_EQ(seen.verdict.roots.size(), 1u);
  ASSERT_EQ(seen.verdict.roots[0].ranks.size(), 1u);
  EXPECT_EQ(seen.verdict.roots[0].ranks[0].rank, 2);
}

// All-to-all is Send and Recv, which do not tell their peer; but all exchange with all.
TEST(JobVerdict, WhoDoesNotComeToAnExchange) {
  SimulatedJob job(4);
  job.AddCommunicator(kData, {0, 1, 2, 3}, 4, 4);
  const auto exchange = [&job](const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      job.Launch(kData, rank, "Send");
      job.Launch(kData, rank, "Recv");
    }
  };
  exchange({0, 1, 2, 3});
  for (int rank = 0; rank < 4; ++rank) job.Complete(kData, rank);
  exchange({0, 1, 3});
  job.Advance(kHangAfter);
  const Seen seen = Look(AllOf(&job, {{0}, {1}, {2}, {3}}), job.now());
  ASSERT_EQ(seen.verdict.roots.size(), 1u);
  EXPECT_EQ(seen.verdict.roots[0].verdict, HangVerdict::kRankNotCalled);
  ASSERT_EQ(seen.verdict.roots[0].ranks.size(), 1u);
  EXPECT_EQ(seen.verdict.roots[0].ranks[0].rank, 2);
  // Counts that differ among those that wait are a pipeline's: nobody is named.
  job.Launch(kData, 0, "Send");
  job.Advance(kHangAfter);
  EXPECT_THAT(Look(AllOf(&job, {{0}, {1}, {2}, {3}}), job.now()).verdict.roots[0].ranks, IsEmpty());
}

TEST(SnapshotUnion, AProcessCountsOnce) {
  SimulatedJob job = TwoNodes();
  SnapshotUnion all({});
  all.Add(Endpoint(&job, {0, 1}));
  job.Advance(kSecond);
  all.Add(Endpoint(&job, {0, 1}));
  all.Add(Endpoint(&job, {2, 3}));
  const SnapshotSet set = all.Take(kHangAfter);
  EXPECT_EQ(set.processes.size(), 4u);
  EXPECT_TRUE(set.is_of_all_nodes);
}

TEST(SnapshotUnion, Filters) {
  SimulatedJob job(4);
  job.process(0).job_id = job.process(1).job_id = "7";
  job.process(2).job_id = "8";
  job.AddCommunicator(kTensor, {0, 1});
  job.AddCommunicator(kData, {1, 2});
  job.AddCommunicator(kData2, {3}, 2);
  JobFilter filter;
  filter.job_id = "7";
  EXPECT_EQ(AllOf(&job, {{0, 1, 2, 3}}, filter).processes.size(), 2u);
  // Its job: who can be reached from it.
  filter = {};
  filter.comm_id = kTensor;
  EXPECT_EQ(AllOf(&job, {{0, 1, 2, 3}}, filter).processes.size(), 3u);
}

// Some of what `bench/jobs:verdicts` does by the thousand.
class MadeUpJob : public testing::TestWithParam<std::string> {};

TEST_P(MadeUpJob, IsJudgedRightly) {
  constexpr uint64_t kJobs = 8;
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    const Scenario scenario = MakeScenario(GetParam(), seed);
    const Judged judged = Judge(scenario);
    EXPECT_EQ(judged.outcome, Outcome::kRight)
        << "seed " << seed << ": " << OutcomeName(judged.outcome) << ": " << judged.said;
  }
}

// GPUs of a pipeline stand behind the pause in another order than the time before.
TEST(MadeUpPause, WhoWaitsBehindItIsUsual) {
  for (const uint64_t seed : {1330u, 2374u}) {
    const Judged judged = Judge(MakeScenario("checkpoint, as before", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << "seed " << seed << ": " << judged.said;
  }
}

std::vector<std::string> HangsAndHealthy() {
  std::vector<std::string> names;
  for (const std::string& name : FaultNames()) {
    const bool is_slow = name.find("straggler") != name.npos || name == "slow node";
    if (!is_slow) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Faults, MadeUpJob, testing::ValuesIn(HangsAndHealthy()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = absl::ascii_isalnum(c) ? c : '_';
                           return name;
                         });

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

// Nobody else is named instead of who is slow, and mostly nobody beside; with pipelines and experts,
// too.
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
  for (const uint64_t seed : {147u, 174u, 278u}) {
    const Judged judged = Judge(MakeScenario("straggler at the GPU", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << seed << ": " << judged.said;
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

// By chance it had the longest sequences of the few steps that there were: in 0.68 to 0.78.
TEST(MadeUpStraggler, NotWhoHadTheLongestSequencesOfAFewSteps) {
  for (const uint64_t seed : {573u, 811u, 848u, 1431u, 1753u}) {
    const Judged judged = Judge(MakeScenario("sequences of unequal length", seed));
    EXPECT_EQ(judged.outcome, Outcome::kRight) << seed << ": " << judged.said;
  }
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

// A stage that has more to do than the others, on all of its ranks, is how the job is made.
TEST(MadeUpStraggler, NotAStageThatDoesMore) {
  Scenario scenario;
  scenario.layout = PipelineOfFour();
  scenario.groups = GroupsOf(scenario.layout, 1);
  scenario.options.fault = Fault::kSlowNode;  // a stage is a node here
  scenario.options.rank = 11;
  scenario.options.asked_ns = 40 * kSecond;
  scenario.answers.assign(static_cast<std::size_t>(scenario.layout.nodes()), Answer::kNow);
  scenario.culprits = {11};
  const Judged judged = Judge(scenario);
  EXPECT_EQ(judged.outcome, Outcome::kNothing) << judged.said;
}

// Of two nodes: the rank that has not begun a replay of a CUDA graph is on one, who waits on both.
TEST(JobVerdict, RankThatHasNotBegunAReplay) {
  SimulatedJob job(4);
  job.AddCommunicator(kData, {0, 1, 2, 3}, 4, 2);
  for (int rank = 0; rank < 4; ++rank) {
    CommunicatorSnapshot& comm = job.Of(kData, rank);
    comm.captured = true;
    comm.calls.push_back({"AllReduce", 4, "ncclFloat32", true, 65, 0});
    comm.graph_replays = rank == 3 ? 100 : 101;
    comm.graph_replays_in_flight = rank == 3 ? 0 : 1;
    comm.graph_moved_realtime_ns = job.now();
    comm.graph_place = {
        1, 1, 1, rank == 3 ? 3u : 1u, 3, rank == 3 ? 61u : 0u, rank == 3 ? 65u : 60u, 65, true};
  }
  job.Advance(kHangAfter);
  const Seen seen = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  ASSERT_EQ(seen.verdict.roots.size(), 1u);
  const JobRoot& root = seen.verdict.roots[0];
  EXPECT_EQ(root.verdict, HangVerdict::kRankNotBegun);
  EXPECT_TRUE(root.is_in_replay);
  ASSERT_EQ(root.ranks.size(), 1u);
  EXPECT_EQ(root.ranks[0].rank, 3);
  EXPECT_EQ(seen.verdict.waits.size(), 3u);
}

}  // namespace
}  // namespace nccl_pulse
