// One verdict over the ranks of many nodes.
#include "exporter/diagnosis/job_verdict.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exporter/base/time.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/job_report.h"
#include "exporter/fleet/snapshot_union.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

JobLook Look(SnapshotSet set, int64_t now) {
  JobLook seen;
  seen.set = std::move(set);
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
  return all.Take();
}

const CommunicatorDiagnosis& Of(const JobLook& seen, uint64_t comm_id) {
  return *std::find_if(seen.diagnosis.begin(), seen.diagnosis.end(),
                       [comm_id](const auto& each) { return each.comm_id == comm_id; });
}

// The verdict's only root, or the test fails.
JobRoot OnlyRoot(const JobLook& seen) {
  EXPECT_THAT(seen.verdict.roots, SizeIs(1));
  return seen.verdict.roots.empty() ? JobRoot() : seen.verdict.roots.front();
}

// The numbers of its ranks.
std::vector<int32_t> RanksOf(const JobRoot& root) {
  std::vector<int32_t> ranks;
  for (const JobRank& rank : root.ranks) ranks.push_back(rank.rank);
  return ranks;
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
struct JobVerdictTest : testing::Test {
  SimulatedJob job = TwoNodes();
};

TEST_F(JobVerdictTest, OneRankOnEachOfTwoNodes) {
  job = SimulatedJob(2);
  job.process(0).hostname = "node-a";
  job.process(1).hostname = "node-b";
  job.AddCommunicator(kData, {0, 1}, 2, 2);
  job.Launch(kData, 0, "AllReduce");
  job.Advance(kHangAfter);
  const JobLook alone = Look(SnapshotSet({job.process(0)}), job.now());
  EXPECT_EQ(Of(alone, kData).hang->verdict, HangVerdict::kNoProgress);
  const JobLook both = Look(AllOf(&job, {{0}, {1}}), job.now());
  const JobRoot root = OnlyRoot(both);
  EXPECT_EQ(root.verdict, HangVerdict::kRankNotCalled);
  ASSERT_EQ(root.ranks.size(), 1u);
  EXPECT_EQ(root.ranks[0].process->hostname, "node-b");
  EXPECT_THAT(root.text, HasSubstr("Rank 1 (node-b, pid 101, GPU 1)"));
}

// The communicator of the rank that the others wait for has been seen hanging once, the other twice.
TEST_F(JobVerdictTest, AHangIsARootEvenIfItsFindingIsMissing) {
  job.Launch(kTensor, 0, "AllReduce");
  job.Launch(kData2, 0, "AllReduce");
  job.Launch(kData2, 1, "AllReduce");
  job.Launch(kTensor2, 0, "AllReduce");
  job.Advance(kHangAfter);
  JobLook look = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  for (CommunicatorDiagnosis& each : look.diagnosis) {
    if (each.hang && each.hang->finding >= 0) each.hang.reset();
  }
  look.verdict = JudgeJob(look.set, look.diagnosis, job.now());
  EXPECT_THAT(OnlyRoot(look).ranks, IsEmpty());
}

TEST_F(JobVerdictTest, TheSentenceNamesEachStraggler) {
  job = TwoLateByTurnsJob(kData, 200);
  JobLook look = Look(AllOf(&job, {{0, 1, 2, 3}}), job.now());
  look.heard = look.endpoints = 1;
  const std::string sentence = JobSentence(look);
  EXPECT_THAT(sentence, HasSubstr("SLOW  global rank "));
  for (const char* rank : {"global rank 1 (", "global rank 3 ("}) {
    EXPECT_THAT(sentence, HasSubstr(rank));
  }
}

// Experts wait for rank 0 in their exchange, which can't be compared because a rank has split a launch.
// Then all of them are late to the AllReduce with another node.
TEST_F(JobVerdictTest, RanksThatWaitForASlowOneInAnExchangeAreNoStragglers) {
  job = SimulatedJob(8);
  for (int i = 0; i < 8; ++i) job.process(i).hostname = i < 4 ? "node-a" : "node-b";
  job.AddCommunicator(kTensor, {0, 1, 2, 3});
  job.AddCommunicator(kTensor2, {4, 5, 6, 7});
  job.AddCommunicator(kData, {0, 1, 2, 3, 4, 5, 6, 7}, 8, 2);
  for (const uint64_t id : {kTensor, kTensor2}) ++job.Of(id, 3).launches;
  for (uint64_t step = 1; step <= 400; ++step) {
    job.Advance(5 * kMs);
    for (const uint64_t id : {kTensor, kTensor2}) {
      for (int rank = 0; rank < 4; ++rank) {
        job.Launch(id, rank, "Send");
        job.Complete(id, rank);
        CommunicatorSnapshot& communicator = job.Of(id, rank);
        communicator.calls = {{"Send", 4, "", false, 3 * step, 0},
                              {"Recv", 4, "", false, 3 * step, 0}};
        TimedCallSnapshot timed;
        timed.op = "Grouped";
        timed.kind = LatencyKind::kDurationStream;
        timed.call_number = step;
        timed.duration_ns = id == kTensor && rank != 0 ? 5 * kMs : kMs;
        timed.end_realtime_ns = job.now();
        communicator.timed_calls.push_back(timed);
        if (step > 32) communicator.timed_calls.erase(communicator.timed_calls.begin());
      }
    }
    job.Collective(kData, "AllReduce", {4 * kMs, 4 * kMs, 4 * kMs, 4 * kMs, 0, 0, 0, 0}, kMs);
  }
  const JobLook look = Look(AllOf(&job, {{0, 1, 2, 3}, {4, 5, 6, 7}}), job.now());
  ASSERT_THAT(look.verdict.stragglers, SizeIs(1));
  ASSERT_THAT(look.verdict.stragglers[0].ranks, SizeIs(1));
  EXPECT_EQ(look.verdict.stragglers[0].ranks[0].process->pid, 100);
}

// An endpoint answers late, or with a page from its cache.
TEST(JobLook, AgesCountFromWhenTheAnswerWasWritten) {
  for (const std::chrono::seconds age : {std::chrono::seconds(0), std::chrono::seconds(2)}) {
    constexpr std::chrono::milliseconds kLateBy(50);
    JobLookOptions options;
    options.ask = [&](const auto& /*requests*/, const auto& /*client*/, const auto& done) {
      std::this_thread::sleep_for(kLateBy);
      const int64_t written_ns = RealtimeNs() - std::chrono::nanoseconds(age).count();
      SimulatedJob job = TwoNodes();
      job.Advance(written_ns - job.now());
      FleetAnswer answer;
      answer.status = 200;
      answer.age = age;
      answer.body = WriteSnapshots(job.Set(), written_ns, kHangAfter);
      done(0, answer);
    };
    const int64_t before_ns = RealtimeNs();
    const JobLook look = LookAtJob({Address()}, options);
    ASSERT_THAT(look.set.processes, SizeIs(4));
    const int64_t written_ns = look.set.processes[0].last_poll_realtime_ns;
    const int64_t age_ns = std::chrono::nanoseconds(age).count();
    EXPECT_GE(written_ns, before_ns + std::chrono::nanoseconds(kLateBy).count() - age_ns);
    EXPECT_LE(written_ns, RealtimeNs() - age_ns);
    EXPECT_GE(look.set.processes[0].clock_error_ns, age_ns == 0 ? 1 : kSecond / 2);
    EXPECT_LE(look.set.processes[0].clock_error_ns, RealtimeNs() - before_ns + kSecond);
  }
}

// A launcher ends a node's ranks soon after the first of them has died.
TEST_F(JobVerdictTest, TheSentenceNamesTheFirstEndOfAJobThatIsGone) {
  JobLook look;
  look.heard = look.endpoints = 1;
  const auto end = [&](int process, int64_t after_ns) {
    look.set.ended.push_back(job.process(process));
    look.set.ended.back().end = ProcessEnd::kLost;
    look.set.ended.back().end_realtime_ns = job.now() + after_ns;
  };
  end(0, 400000000);
  EXPECT_THAT(JobSentence(look), HasSubstr(" Without finalizing: global rank 0 on node-a ("));
  end(1, 0);
  EXPECT_THAT(JobSentence(look), AllOf(HasSubstr("ENDED  No process of this job lives. 2 "),
                                       HasSubstr("First without finalizing: global rank 1 on"),
                                       HasSubstr(", 400 ms before the others. Next: its log")));
  // On several hosts, by how well their times are known.
  look.set.ended[0].hostname = "node-b";
  EXPECT_THAT(JobSentence(look), Not(HasSubstr("First")));
  for (ProcessSnapshot& process : look.set.ended) process.clock_error_ns = 200000000;
  EXPECT_THAT(JobSentence(look), Not(HasSubstr("First")));
  for (ProcessSnapshot& process : look.set.ended) process.clock_error_ns = 100000000;
  EXPECT_THAT(JobSentence(look), HasSubstr("First without finalizing: global rank 1 on"));
  // Two at a time: nobody is first.
  look.set.ended[0].hostname = look.set.ended[1].hostname;
  look.set.ended.back().end_realtime_ns = job.now() + 399000000;
  EXPECT_THAT(JobSentence(look), Not(HasSubstr("First")));
}

TEST_F(JobVerdictTest, TheFirstEndIsOfTheLastAttempt) {
  JobLook look;
  look.heard = look.endpoints = 1;
  const auto end = [&](int process, int64_t start_ns, int64_t end_ns) {
    ProcessSnapshot& ended = look.set.ended.emplace_back(job.process(process));
    ended.end = ProcessEnd::kLost;
    ended.start_realtime_ns = job.now() + start_ns;
    ended.end_realtime_ns = job.now() + end_ns;
  };
  end(1, 0, 10 * kSecond);
  end(0, 0, 11 * kSecond);
  end(0, 20 * kSecond, 30 * kSecond);
  end(1, 20 * kSecond, 31 * kSecond);
  EXPECT_THAT(JobSentence(look), HasSubstr("First without finalizing: global rank 0 on"));
}

// Pid 1 of the host is its init: what to do first must not name that one.
TEST_F(JobVerdictTest, APidIsTheOneThatCountsThere) {
  const auto sentence_of = [this](uint32_t pid_namespace, int32_t seen_pid, uint32_t seen_in) {
    job = SimulatedJob(2);
    for (int i = 0; i < 2; ++i) {
      job.process(i).hostname = "node-a";
      job.process(i).pid = 1;
      job.process(i).pid_namespace = pid_namespace + i;
      job.process(i).seen_pid = seen_pid;
      job.process(i).seen_in = seen_in;
    }
    job.AddCommunicator(kData, {0, 1});
    job.Launch(kData, 0, "AllReduce");
    job.Advance(kHangAfter);
    return JobText(Look(AllOf(&job, {{0, 1}}), job.now()));
  };
  const std::string by_host = sentence_of(5, 4711, 0);
  EXPECT_THAT(by_host, HasSubstr("1 of 2 processes wait, since "));
  EXPECT_THAT(by_host, HasSubstr(". Next: py-spy dump --pid 4711 on node-a."));
  EXPECT_THAT(by_host, HasSubstr("Rank 1 (node-a, pid 4711, GPU 1)"));
  const std::string by_nobody = sentence_of(5, 0, 0);
  EXPECT_THAT(by_nobody,
              HasSubstr("py-spy dump --pid 1 on node-a, in its container (PID namespace 6)."));
  EXPECT_THAT(by_nobody, HasSubstr("Rank 1 (node-a, pid 1 in its container, GPU 1)"));
  EXPECT_THAT(by_nobody, HasSubstr("  1@6  "));
  // Of the endpoint's own container: its number is of no use on the host either.
  const std::string by_neighbour = sentence_of(5, 9, 6);
  EXPECT_THAT(by_neighbour,
              HasSubstr("py-spy dump --pid 1 on node-a, in its container (PID namespace 6)."));
  EXPECT_THAT(by_neighbour, HasSubstr("Rank 1 (node-a, pid 9, GPU 1)"));
}

TEST_F(JobVerdictTest, TheMissingCallHasANumberIfItIsOfOneKind) {
  for (int i = 0; i < 7; ++i) job.Collective(kTensor, "AllReduce", {0, 0}, kMs);
  job.Launch(kTensor, 0, "AllReduce");
  SimulatedJob two_kinds = job;
  job.Advance(kHangAfter);
  const JobLook one = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  EXPECT_EQ(OnlyRoot(one).missing_call, "AllReduce #8 (up to 1MiB)");
  EXPECT_THAT(OnlyRoot(one).text, HasSubstr("AllReduce #8 (up to 1MiB)"));
  EXPECT_THAT(JobSentence(one), HasSubstr("has not called AllReduce #8 (up to 1MiB); 1 of "));

  two_kinds.Launch(kTensor, 0, "AllGather");
  two_kinds.Advance(kHangAfter);
  const JobLook two = Look(AllOf(&two_kinds, {{0, 1}, {2, 3}}), two_kinds.now());
  EXPECT_EQ(OnlyRoot(two).missing_call, "");
}

// Rank 1 of the data-parallel communicator is not reported. Nobody answers for its node.
TEST_F(JobVerdictTest, OnlyTheEndpointsOfAJobExcuseItsUnreportedRanksByRejecting) {
  for (const uint64_t id : {kData, kData2}) job.Collective(id, "AllReduce", {0, 0}, kMs);
  job.Launch(kData, 0, "AllReduce");
  job.Advance(kHangAfter);
  SimulatedJob neighbour(1);
  neighbour.AddCommunicator(9, {0});
  neighbour.Advance(job.now() - kStart);
  for (const bool is_own : {false, true}) {
    SnapshotMessage of_job = Endpoint(&job, {0, 1});
    SnapshotMessage of_neighbour = Endpoint(&neighbour, {0});
    (is_own ? of_job : of_neighbour).set.unread_processes = 2;
    SnapshotUnion all({});
    all.Add(std::move(of_job), "node-a", 0);
    all.Add(std::move(of_neighbour), "node-c", 1);
    JobLook look = Look(all.Take(), job.now());
    look.endpoint_of = std::make_shared<const SnapshotUnion::EndpointOf>(all.TakeEndpoints());
    look.now_realtime_ns = job.now();
    EXPECT_EQ(OnlyRoot(look).verdict,
              is_own ? HangVerdict::kNoProgress : HangVerdict::kRankNotSeen);
    if (is_own) {
      EXPECT_THAT(JobSentence(look), HasSubstr("ranks of communicator 0000000000000003 wait in "
                                               "AllReduce, and nothing completes; 1 of "));
    }
    const std::vector<JobLook> jobs = SplitByJob(std::move(look));
    ASSERT_THAT(jobs, SizeIs(2));
    for (const JobLook& part : jobs) {
      const bool is_job = part.set.processes.size() > 1;
      EXPECT_EQ(part.set.unread_processes, is_job == is_own ? 2u : 0u);
    }
  }
}

// The rank has ended two seconds after the others began to wait.
TEST_F(JobVerdictTest, TheTimesOfAnEndAndOfTheWait) {
  job.Launch(kTensor, 0, "AllReduce");
  const std::string waits = ClockWords(job.now());
  job.Advance(2 * kSecond);
  End(&job, 1);
  const std::string ended = ClockWords(job.now());
  job.Advance(kHangAfter);
  JobLook look = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  look.now_realtime_ns = job.now();
  EXPECT_THAT(JobSentence(look), HasSubstr("ended at " + ended +
                                           " without finalizing its communicators; 1 of 3 "
                                           "processes wait, since " +
                                           waits + " (12 s). Next"));
}

TEST_F(JobVerdictTest, WhyAProcessDoesNotRun) {
  job.Launch(kTensor, 0, "AllReduce");
  AdvanceWithout(&job, 1);
  const auto sentence = [this](RunState state) {
    job.process(1).run_state = state;
    return JobSentence(Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now()));
  };
  EXPECT_THAT(sentence(RunState::kFrozen), HasSubstr(") is frozen by its cgroup; 1 of 4 "));
  EXPECT_THAT(sentence(RunState::kUnknown), HasSubstr(") has done nothing; 1 of 4 "));
}

// The root of a Broadcast leaves before the others.
TEST_F(JobVerdictTest, ThatNothingCompletesIsNotSaidOfWhatTheRootHasCompleted) {
  for (const int rank : {0, 1}) job.Launch(kTensor, rank, "Broadcast");
  job.Complete(kTensor, 0);
  job.Advance(kHangAfter);
  const JobLook look = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  ASSERT_EQ(OnlyRoot(look).verdict, HangVerdict::kNoProgress);
  EXPECT_THAT(JobSentence(look), HasSubstr("ranks of communicator 0000000000000001 wait in "
                                           "Broadcast, and nothing completes"));
}

TEST_F(JobVerdictTest, VictimsAreBlockedElsewhere) {
  // Process 3 does not come to its tensor-parallel call; 2 waits for it, 0 and 1 wait for both.
  job.Launch(kTensor2, 0, "AllReduce");
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kData2, 0, "AllReduce");
  job.Advance(kHangAfter);
  const JobLook seen = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  EXPECT_EQ(Of(seen, kTensor2).hang->verdict, HangVerdict::kRankNotCalled);
  EXPECT_EQ(Of(seen, kData).hang->verdict, HangVerdict::kBlockedElsewhere);
  const JobRoot root = OnlyRoot(seen);
  ASSERT_EQ(root.ranks.size(), 1u);
  EXPECT_EQ(root.ranks[0].process->pid, 103);
  EXPECT_THAT(root.communicators, ElementsAre(kTensor2, kData2));  // it is the same in both
  EXPECT_EQ(seen.verdict.waits.size(), 3u);
  EXPECT_EQ(seen.verdict.blocked_communicators, 1u);
}

// A usual wait, and one behind it that is older.
TEST_F(JobVerdictTest, WhatWaitsForAUsualWaitIsNoRoot) {
  job.Of(kTensor2, 0).longest_waits = {WaitedBefore("AllReduce", 60 * kSecond)};
  job.Launch(kData, 0, "AllReduce");
  job.Advance(kSecond);
  job.Launch(kTensor2, 0, "AllReduce");
  job.Advance(kHangAfter);
  const JobLook seen = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  ASSERT_EQ(seen.verdict.roots.size(), 1u);
  EXPECT_EQ(seen.verdict.roots[0].verdict, HangVerdict::kRankNotCalled);
  EXPECT_EQ(seen.verdict.roots[0].ranks[0].process->pid, 103);
  for (const JobRoot& root : seen.verdict.roots) EXPECT_TRUE(root.is_usual);
}

// Its node does not answer: its ranks are what is missing, and nobody who waits is named.
TEST_F(JobVerdictTest, WhomNobodyHasSeen) {
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kData2, 0, "AllReduce");
  job.Advance(kHangAfter);
  const JobLook seen = Look(AllOf(&job, {{0, 1}}), job.now());
  const JobRoot root = OnlyRoot(seen);
  EXPECT_EQ(root.verdict, HangVerdict::kRankNotSeen);
  EXPECT_THAT(root.communicators, ElementsAre(kData, kData2));
  EXPECT_THAT(root.text, HasSubstr("the endpoints that answered"));
  EXPECT_THAT(RanksOf(root), ElementsAre(1, 1));
  for (const JobRank& rank : root.ranks) EXPECT_EQ(rank.process, nullptr);
}

TEST_F(JobVerdictTest, CircleOverNodes) {
  job = SimulatedJob(2);
  job.AddCommunicator(kData, {0, 1}, 2, 2);
  job.AddCommunicator(kData2, {0, 1}, 2, 2);
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kData2, 1, "AllReduce");
  job.Advance(kHangAfter);
  const JobLook seen = Look(AllOf(&job, {{0}, {1}}), job.now());
  EXPECT_EQ(OnlyRoot(seen).verdict, HangVerdict::kCircularWait);
  EXPECT_THAT(OnlyRoot(seen).ranks, SizeIs(2));
}

// Of ranks that call different sizes the fewer are named.
TEST_F(JobVerdictTest, TheFewerDiffer) {
  job = RunningJob(4, 4);
  LaunchOn(&job, {0, 1, 3}, "AllReduce", 4);
  LaunchOn(&job, {2}, "AllReduce", 6);
  job.Advance(kHangAfter);
  const JobLook seen = Look(AllOf(&job, {{0}, {1}, {2}, {3}}), job.now());
  EXPECT_THAT(RanksOf(OnlyRoot(seen)), ElementsAre(2));
}

// An all-to-all whose peers are not known.
TEST_F(JobVerdictTest, WhoDoesNotComeToAnExchange) {
  job = SimulatedJob(4);
  job.AddCommunicator(kData, {0, 1, 2, 3}, 4, 4);
  const auto exchange = [this](const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      for (int peer = 0; peer < 3; ++peer) job.Call(kData, rank, "Send");
      for (int peer = 0; peer < 2; ++peer) job.Call(kData, rank, "Recv");
      job.Launch(kData, rank, "Recv");
    }
  };
  exchange({0, 1, 2, 3});
  for (int rank = 0; rank < 4; ++rank) job.Complete(kData, rank);
  exchange({0, 1, 3});
  job.Advance(kHangAfter);
  const JobLook seen = Look(AllOf(&job, {{0}, {1}, {2}, {3}}), job.now());
  EXPECT_EQ(OnlyRoot(seen).verdict, HangVerdict::kRankNotCalled);
  EXPECT_THAT(RanksOf(OnlyRoot(seen)), ElementsAre(2));
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
  const SnapshotSet set = all.Take();
  EXPECT_EQ(set.processes.size(), 4u);
  EXPECT_TRUE(set.is_of_all_nodes);
}

// Containers were started with one --hostname, and their process IDs are the same, too.
TEST(SnapshotUnion, TellsNodesWithOneHostNameApart) {
  SimulatedJob job(4);
  job.AddCommunicator(kData, {0, 1, 2, 3}, 4, 2);
  for (int i = 0; i < 4; ++i) {
    job.process(i).hostname = "trainer";
    job.process(i).pid = 7 + i % 2;
    job.process(i).global_rank = std::to_string(i);
  }
  SnapshotUnion all({});
  all.Add(Endpoint(&job, {0, 1}), "10.0.0.1:9410", 0);
  all.Add(Endpoint(&job, {2, 3}), "10.0.0.2:9410", 1);
  all.Add(Endpoint(&job, {2, 3}), "node-2:9410", 2);  // the same endpoint
  const SnapshotSet set = all.Take();
  ASSERT_EQ(set.processes.size(), 4u);
  std::map<std::string, std::string> hosts;
  for (const ProcessSnapshot& each : set.processes) hosts[each.global_rank] = each.hostname;
  EXPECT_EQ(hosts["1"], "trainer at 10.0.0.1:9410");
  EXPECT_EQ(hosts["2"], "trainer at 10.0.0.2:9410");
  const SnapshotUnion::EndpointOf endpoints = all.TakeEndpoints();
  EXPECT_EQ(endpoints.at({"trainer at 10.0.0.1:9410", 7}), 0u);
  EXPECT_EQ(endpoints.at({"trainer at 10.0.0.2:9410", 7}), 1u);
}

// A node may have two endpoints.
TEST(SnapshotUnion, KeepsAHostNameThatIsOfOneNode) {
  SimulatedJob job(4);
  job.AddCommunicator(kData, {0, 1, 2, 3}, 4, 1);
  SnapshotUnion all({});
  for (int i = 0; i < 4; ++i) job.process(i).hostname = "trainer";
  all.Add(Endpoint(&job, {0, 1}), "10.0.0.1:9410", 0);
  all.Add(Endpoint(&job, {2, 3}), "10.0.0.1:9411", 1);
  for (const ProcessSnapshot& each : all.Take().processes) EXPECT_EQ(each.hostname, "trainer");
}

TEST(SnapshotUnion, KeepsJobsWhole) {
  SimulatedJob job(4);
  job.process(0).job_id = job.process(1).job_id = "7";
  job.process(2).job_id = "8";
  job.process(3).job_id = "9";
  job.AddCommunicator(kTensor, {0, 1});
  job.AddCommunicator(kData, {1, 2});
  job.AddCommunicator(kData2, {3}, 2);
  JobFilter filter;
  filter.job_id = "7";
  // Both IDs are of one job, whose ranks share communicators.
  EXPECT_EQ(AllOf(&job, {{0, 1, 2, 3}}, filter).processes.size(), 3u);
  filter.job_id = "9";
  EXPECT_EQ(AllOf(&job, {{0, 1, 2, 3}}, filter).processes.size(), 1u);
  filter = {};
  filter.comm_id = kTensor;
  EXPECT_EQ(AllOf(&job, {{0, 1, 2, 3}}, filter).processes.size(), 3u);
}

// Of two nodes: the rank that has not begun a replay of a CUDA graph is on one, who waits on both.
TEST_F(JobVerdictTest, RankThatHasNotBegunAReplay) {
  job = SimulatedJob(4);
  job.AddCommunicator(kData, {0, 1, 2, 3}, 4, 2);
  for (int rank = 0; rank < 4; ++rank) {
    CommunicatorSnapshot& comm = job.Of(kData, rank);
    comm.captured = true;
    comm.calls.push_back({"AllReduce", 4, "ncclFloat32", true, 65, 0});
    comm.graph_replays = rank == 3 ? 100 : 101;
    comm.graph_replays_in_flight = rank == 3 ? 0 : 1;
    comm.graph_moved_realtime_ns = job.now();
    comm.graph_position = {
        1, 1, 1, rank == 3 ? 3u : 1u, 3, rank == 3 ? 61u : 0u, rank == 3 ? 65u : 60u, 65, true};
  }
  job.Advance(kHangAfter);
  const JobLook seen = Look(AllOf(&job, {{0, 1}, {2, 3}}), job.now());
  const JobRoot root = OnlyRoot(seen);
  EXPECT_EQ(root.verdict, HangVerdict::kRankNotBegun);
  EXPECT_EQ(root.situation, Situation::kInReplay);
  EXPECT_THAT(RanksOf(root), ElementsAre(3));
  EXPECT_EQ(seen.verdict.waits.size(), 3u);
}

}  // namespace
}  // namespace nccl_pulse
