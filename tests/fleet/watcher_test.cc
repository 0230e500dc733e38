#include "exporter/watch/watcher.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/watch/watch_page.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"
#include "tests/fleet/job_endpoints.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class WatcherTest : public testing::Test {
 protected:
  // Processes 0 to 3 are a job, each on a node of its own, and 4 and 5 another one on nodes 4 and
  // 5.
  WatcherTest() : job_(6) {
    job_.AddCommunicator(kComm, {0, 1, 2, 3}, 0, 4);
    job_.AddCommunicator(kOther, {4, 5}, 0, 2);
    job_.process(4).job_id = job_.process(5).job_id = "4712";
    for (int i = 0; i < 20; ++i) {
      job_.Collective(kComm, "AllReduce", {0, 0, 0, 0}, kMs);
      job_.Collective(kOther, "AllReduce", {0, 0}, kMs);
    }
    Spread();
  }

  void Spread() { endpoints_.emplace(&job_, std::vector<int>{0, 1, 2, 3, 4, 5}); }

  std::unique_ptr<Watcher> MakeWatcher() {
    Watcher::Options options;
    options.find = [this](auto* found, auto*, auto*) {
      *found = endpoints_->addresses();
      return true;
    };
    options.look.ask = endpoints_->ask();
    options.look.pause = milliseconds(0);
    options.look.hang_after = hang_after_;
    options.clock = [this] { return now_; };
    return std::make_unique<Watcher>(std::move(options));
  }

  // Made at its first use.
  Watcher& watcher() {
    if (watcher_ == nullptr) watcher_ = MakeWatcher();
    return *watcher_;
  }

  void Pass(milliseconds time) {
    now_ += time;
    job_.Advance(std::chrono::nanoseconds(time).count());
  }

  // Rank 2 does not come.
  void Hang() {
    for (const int rank : {0, 1, 3}) job_.Launch(kComm, rank, "AllReduce");
  }

  // Rounds every 2 s, and when something is due.
  void RunFor(seconds time) {
    const Watcher::Time end = now_ + time;
    while (now_ < end) {
      watcher().Round();
      const Watcher::Time next = std::min(watcher().NextRound(now_ + seconds(2)), end);
      Pass(std::chrono::duration_cast<milliseconds>(next - now_) + milliseconds(1));
    }
  }

  std::string Metrics() { return WatchMetrics(*watcher().state()); }

  SimulatedJob job_;
  std::optional<JobEndpoints> endpoints_;
  std::optional<milliseconds> hang_after_;
  Watcher::Time now_{seconds(1000)};
  std::unique_ptr<Watcher> watcher_;
};

constexpr char kNamed[] = R"(nccl_job_hang_start_timestamp_seconds{job_id="4711",workload="4711",)"
                          R"(comm="00000000000000c0",rank="2",global_rank="2",Hostname="node-2",)";

// Lines on hangs, without their values.
std::vector<std::string> Series(const std::string& text) {
  std::vector<std::string> series;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    if (line.rfind("nccl_job_hang", 0) == 0) series.push_back(line.substr(0, line.rfind(' ')));
  }
  return series;
}

std::vector<std::string> Hangs(const std::string& text) {
  std::vector<std::string> hangs;
  for (std::string& each : Series(text)) {
    if (each.rfind("nccl_job_hang_start", 0) == 0) hangs.push_back(std::move(each));
  }
  return hangs;
}

TEST_F(WatcherTest, NamesTheRankWhenItsTimeIsOver) {
  RunFor(seconds(5));
  Hang();
  const Watcher::Time began = now_;
  while (Metrics().find(kNamed) == std::string::npos) {
    ASSERT_LT(now_ - began, seconds(15));
    watcher().Round();
    Pass(std::chrono::duration_cast<milliseconds>(watcher().NextRound(now_ + seconds(2)) - now_));
  }
  // A round is made for it, not when the next one would be.
  EXPECT_GE(now_ - began, seconds(10));
  EXPECT_LT(now_ - began, seconds(13));
}

TEST_F(WatcherTest, GivesTheTextsOfAnAlert) {
  Hang();
  RunFor(seconds(14));
  EXPECT_THAT(
      WatchMetrics(*watcher().state(), "https://watch/"),
      HasSubstr(R"(nccl_job_hang_info{job_id="4711",workload="4711",comm="00000000000000c0",)"
                R"(rank="2",text="rank 2 (node-2, GPU 2) has not called AllReduce #21 (up to )"
                R"(1MiB); 3 processes wait",first_step="py-spy dump --pid 102 on node-2",)"
                R"(report="https://watch/?job_id=4711"} 1)"));
  EXPECT_THAT(Metrics(), Not(HasSubstr("report=")));
}

// All nodes of the job lost their network: nothing says that it goes on.
TEST_F(WatcherTest, AHangStaysWhileItsEndpointsAreSilent) {
  Hang();
  RunFor(seconds(14));
  endpoints_->silent = {0, 1, 2, 3};
  for (int i = 0; i < 5; ++i) {
    RunFor(seconds(100));
    EXPECT_THAT(Metrics(), HasSubstr(kNamed));
  }
  EXPECT_THAT(Metrics(), HasSubstr("; its endpoints are silent since "));
  // They answer, and the job goes on.
  endpoints_->silent.clear();
  for (int rank = 0; rank < 4; ++rank) job_.Complete(kComm, rank);
  RunFor(seconds(4));
  EXPECT_THAT(Metrics(), Not(HasSubstr("nccl_job_hang_info{")));
}

TEST_F(WatcherTest, AHangStaysWhileOnlyTheNamedRankAnswers) {
  Hang();
  RunFor(seconds(14));
  endpoints_->silent = {0, 1, 3};
  RunFor(seconds(60));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
}

// As Slurm requeues a job under its ID.
TEST_F(WatcherTest, AHangEndsWhenTheJobRunsOnOtherNodes) {
  job_ = SimulatedJob(8);
  job_.AddCommunicator(kComm, {0, 1, 2, 3}, 0, 4);
  for (int i = 0; i < 20; ++i) job_.Collective(kComm, "AllReduce", {0, 0, 0, 0}, kMs);
  endpoints_.emplace(&job_, std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  endpoints_->silent = {4, 5, 6, 7};
  Hang();
  RunFor(seconds(14));
  endpoints_->silent = {0, 1, 2, 3, 4, 5, 6, 7};
  RunFor(seconds(60));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
  job_.AddCommunicator(kOther, {4, 5, 6, 7}, 0, 4);
  endpoints_->silent = {0, 1, 2, 3};
  RunFor(seconds(4));
  EXPECT_THAT(Metrics(), Not(HasSubstr("hang_start_timestamp_seconds{")));
}

TEST_F(WatcherTest, ARestartedJobIsJudgedByItsLastAttempt) {
  job_ = SimulatedJob(8);
  job_.AddCommunicator(kComm, {0, 1, 2, 3}, 0, 4);
  for (int i = 0; i < 20; ++i) job_.Collective(kComm, "AllReduce", {0, 0, 0, 0}, kMs);
  endpoints_.emplace(&job_, std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3});
  Hang();
  for (int i = 0; i < 4; ++i) End(&job_, i);
  job_.AddCommunicator(kOther, {4, 5, 6, 7}, 0, 4);
  for (int i = 0; i < 20; ++i) job_.Collective(kOther, "AllReduce", {0, 0, 0, 0}, kMs);
  RunFor(seconds(4));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_jobs{state=\"ok\"} 1"));
}

class RestartTest : public WatcherTest {
 protected:
  // Processes 0 to 3 are the first attempt, and 4 to 7 the second. None of the second's endpoints
  // answers yet, unless it is also an endpoint of the first.
  void StartFirst(const std::vector<int>& nodes) {
    job_ = SimulatedJob(8);
    for (int i = 4; i < 8; ++i) job_.process(i).end = ProcessEnd::kExit;
    endpoints_.emplace(&job_, nodes);
    for (const int node : std::vector<int>(nodes.begin() + 4, nodes.end())) {
      if (std::count(nodes.begin(), nodes.begin() + 4, node) == 0) endpoints_->silent.insert(node);
    }
  }

  void Add(uint64_t id, const std::vector<int>& members, int nranks = 0) {
    job_.AddCommunicator(id, members, nranks, 4);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      job_.process(members[rank]).end = ProcessEnd::kLive;
      job_.Of(id, static_cast<int>(rank)).init_realtime_ns = job_.now();
    }
    ranks_[id] = members.size();
  }

  void Train(const std::vector<uint64_t>& ids, int steps) {
    for (int i = 0; i < steps; ++i) {
      for (const uint64_t id : ids) {
        job_.Collective(id, "AllReduce", std::vector<int64_t>(ranks_[id]), kMs);
      }
      RunFor(seconds(2));
    }
  }

  // The first attempt trains, ends, and these endpoints fall silent.
  void EndFirst(const std::vector<uint64_t>& ids, const std::set<int>& silent) {
    Train(ids, 10);
    for (int i = 0; i < 4; ++i) End(&job_, i);
    endpoints_->silent = silent;
    RunFor(seconds(10));
  }

  std::string State() {
    for (const WatchedJob& job : watcher().state()->jobs) {
      if (job.job_id == "4711") return JobStateName(job.findings.state);
    }
    return "none";
  }

  std::map<uint64_t, std::size_t> ranks_;
};

TEST_F(RestartTest, AJobThatWasRestartedOnOtherNodesIsOk) {
  for (const bool is_on_lower_nodes : {false, true}) {
    StartFirst(is_on_lower_nodes ? std::vector<int>{4, 5, 6, 7, 0, 1, 2, 3}
                                 : std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
    watcher_ = MakeWatcher();
    const std::set<int> second = endpoints_->silent;
    Add(kComm, {0, 1, 2, 3});
    EndFirst({kComm}, {0, 1, 2, 3, 4, 5, 6, 7});
    for (const int node : second) endpoints_->silent.erase(node);
    Add(kOther, {4, 5, 6, 7});
    Train({kOther}, 35);
    EXPECT_EQ(State(), "ok") << is_on_lower_nodes;
    EXPECT_EQ(watcher().state()->jobs.front().processes, 4);
    const std::string names = is_on_lower_nodes
                                  ? "node-4:9410, node-5:9410, node-6:9410, node-7:9410"
                                  : "node-0:9410, node-1:9410, node-2:9410, node-3:9410";
    EXPECT_THAT(watcher().state()->jobs.front().findings.text,
                HasSubstr("  NO ANSWER  4: " + names +
                          ": no connection in time; it served only an earlier attempt of this "
                          "job\n"));
  }
}

// An agent on node 0 to 2 knows the ended processes.
TEST_F(RestartTest, AJobThatWasRestartedWithoutALostNodeIsOk) {
  StartFirst({0, 1, 2, 3, 0, 1, 2, 2});
  Add(kComm, {0, 1, 2, 3});
  EndFirst({kComm}, {3});
  Add(kOther, {4, 5, 6, 7});
  Train({kOther}, 35);
  EXPECT_EQ(State(), "ok");
  const char kNote[] =
      "  NO ANSWER  1: node-3:9410: no connection in time; it served only an earlier attempt of "
      "this "
      "job\n";
  EXPECT_THAT(watcher().state()->jobs.front().findings.text, HasSubstr(kNote));
  JobFilter filter;
  filter.job_id = "4711";
  const JobLook look = watcher().Ask(filter);
  EXPECT_EQ(StateOf(look), JobState::kOk);
  EXPECT_THAT(JobText(look), HasSubstr(kNote));
}

// The hang was found before the silence, and again in the second attempt.
TEST_F(RestartTest, AHangOfEitherAttemptIsNotOk) {
  StartFirst({0, 1, 2, 3, 0, 1, 2, 2});
  Add(kComm, {0, 1, 2, 3});
  Train({kComm}, 10);
  Hang();
  RunFor(seconds(14));
  EXPECT_EQ(State(), "hang");
  endpoints_->silent = {2, 3};
  RunFor(seconds(60));
  EXPECT_EQ(State(), "hang");
  for (int i = 0; i < 4; ++i) End(&job_, i);
  endpoints_->silent = {3};
  Add(kOther, {4, 5, 6, 7});
  Train({kOther}, 35);
  EXPECT_EQ(State(), "ok");
  job_.Launch(kOther, 0, "AllReduce");
  RunFor(seconds(14));
  EXPECT_EQ(State(), "hang");
}

// Process 4 lives beside the rank that has ended, and shares a communicator with the silent nodes.
TEST_F(RestartTest, AHangStaysWhileLiveProcessesBesideAnEndedRankMayWait) {
  StartFirst({0, 1, 2, 3, 2, 3, 3, 3});
  Add(kComm, {0, 1, 2, 3});
  Add(kOther, {4, 5});
  Train({kComm, kOther}, 10);
  Hang();
  End(&job_, 2);
  RunFor(seconds(14));
  EXPECT_EQ(State(), "hang");
  endpoints_->silent = {0, 1, 3};
  RunFor(seconds(60));
  EXPECT_EQ(State(), "hang");
}

TEST_F(RestartTest, AJobIsIncompleteWhileRanksOfItsLastAttemptAreMissing) {
  StartFirst({0, 1, 2, 3, 0, 1, 2, 2});
  Add(kComm, {0, 1, 2, 3});
  EndFirst({kComm}, {3});
  Add(kOther, {4, 5, 6, 7}, 5);
  Train({kOther}, 35);
  EXPECT_EQ(State(), "incomplete");
}

TEST_F(RestartTest, AJobIsIncompleteWhileItsNodeIsSilent) {
  StartFirst({0, 1, 2, 3, 4, 4, 4, 4});
  Add(kComm, {0, 1, 2, 3});
  Add(kOther, {0, 1, 2});
  Train({kComm, kOther}, 10);
  endpoints_->silent.insert(3);
  Train({kOther}, 35);
  EXPECT_EQ(State(), "incomplete");
}

// What the silent node does was seen to be apart from the others.
TEST_F(RestartTest, AJobIsIncompleteWhileAnIndependentPartIsSilent) {
  StartFirst({0, 1, 2, 3, 0, 1, 2, 2});
  Add(kComm, {0, 1, 2});
  Add(1, {3});
  EndFirst({kComm, 1}, {3});
  Add(kOther, {4, 5, 6, 7});
  Train({kOther}, 35);
  EXPECT_EQ(State(), "incomplete");
}

// The second attempt began while the node that falls silent answered.
TEST_F(RestartTest, AnEndpointThatFallsSilentLaterMayHaveRanksIfOneLivedThere) {
  for (const bool lives : {false, true}) {
    StartFirst({0, 1, 2, 3, 0, 1, 2, 2});
    watcher_ = MakeWatcher();
    Add(kComm, {0, 1, 2, 3});
    Train({kComm}, 10);
    for (int i = 0; i < (lives ? 3 : 4); ++i) End(&job_, i);
    Add(kOther, {4, 5, 6, 7});
    Train({kOther}, 2);
    endpoints_->silent.insert(3);
    Train({kOther}, 35);
    EXPECT_EQ(State(), lives ? "incomplete" : "ok");
  }
}

TEST_F(WatcherTest, AJobWhoseProcessesHaveEndedHasEnded) {
  for (int i = 0; i < 4; ++i) End(&job_, i);
  RunFor(seconds(8));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_jobs{state=\"ended\"} 1"));
  EXPECT_THAT(WatchPage(*watcher().state(), ""),
              HasSubstr("<b>ended</b><td>No process of this job lives. "));
}

// Prometheus keeps one of several equal series, whichever comes first.
TEST_F(WatcherTest, JobsWithoutAnIdShareOneSeries) {
  for (int i = 0; i < 6; ++i) job_.process(i).job_id = "";
  job_.process(5).start_realtime_ns = job_.now() - 60 * kSecond;
  Hang();
  job_.Launch(kOther, 0, "AllReduce");
  RunFor(seconds(14));
  EXPECT_EQ(Hangs(Metrics()).size(), 2u);
  double youngest_s = 0;
  for (const WatchedJob& job : watcher().state()->jobs) {
    youngest_s = std::max(youngest_s, job.findings.hangs.at(0).job_start_s);
  }
  const std::string start = "\nnccl_job_hang_process_start_timestamp_seconds ";
  EXPECT_EQ(std::stod(Metrics().substr(Metrics().find(start) + start.size())), youngest_s);
  EXPECT_EQ(Metrics().find(start), Metrics().rfind(start));
}

// One job is polled a round, a job whose health has changed before the others.
TEST_F(WatcherTest, ManyHealthyJobsDelayNoNewsOfAnother) {
  constexpr int kJobs = 60;
  job_ = SimulatedJob(2 * kJobs);
  std::vector<int> nodes;
  for (int i = 0; i < kJobs; ++i) {
    const uint64_t comm = static_cast<uint64_t>(i + 1) << 8;
    job_.AddCommunicator(comm, {2 * i, 2 * i + 1});
    for (int rank = 0; rank < 2; ++rank) {
      job_.process(2 * i + rank).job_id = std::to_string(i);
      job_.Of(comm, rank).longest_waits = {WaitedBefore("AllReduce", 3600 * kSecond)};  // not idle
      nodes.push_back(i);
    }
  }
  endpoints_.emplace(&job_, nodes);
  RunFor(seconds(150));
  const int last = std::stoi(endpoints_->asked.back().substr(5));
  job_.Of(static_cast<uint64_t>(last + 1) << 8, 0).driver_error = 700;
  RunFor(seconds(40));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_jobs{state=\"incomplete\"} 1"));
}

// The notes of `pulse diagnose`, in the row of their job. Of the other job nothing else is known.
TEST_F(WatcherTest, ShowsTheNotesOfJobsWithoutThePlugin) {
  endpoints_->notes[4] = {{kOther, "Rank 1 is frozen by its cgroup."},
                          {0x77, "Rank 2 is held by a debugger."}};
  RunFor(seconds(10));
  const std::string page = WatchPage(*watcher().state(), "");
  const auto row_of = [&page](const std::string& note) {
    const std::size_t at = page.find(note);
    return at == page.npos ? "" : page.substr(page.rfind("<tr", at), at - page.rfind("<tr", at));
  };
  EXPECT_THAT(row_of("frozen"), HasSubstr("<td>4712<td>"));
  EXPECT_THAT(row_of("debugger"),
              HasSubstr("<tr class=incomplete><td>a job without ID<td><b>incomplete</b><td>No hang "
                        "is suspected, but a job without the plugin is not known to progress."));
  EXPECT_THAT(page, HasSubstr("<td>0<td><details><summary class=nodes>2</summary>"));
}

TEST_F(WatcherTest, SaysSinceWhenAJobIsIdle) {
  RunFor(seconds(200));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_jobs{state=\"idle\"} 2"));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_job_idle_start_timestamp_seconds{job_id=\"4711\""));
  for (int i = 0; i < 20; ++i) {
    job_.Collective(kComm, "AllReduce", {0, 0, 0, 0}, kMs);
    RunFor(seconds(2));
  }
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_jobs{state=\"idle\"} 1"));
}

TEST_F(WatcherTest, AsksTheEndpointsOfThatJobAlone) {
  RunFor(seconds(4));
  Hang();
  RunFor(seconds(9));
  endpoints_->asked.clear();
  RunFor(seconds(4));
  const std::set<std::string> asked(endpoints_->asked.begin(), endpoints_->asked.end());
  EXPECT_THAT(asked, testing::ElementsAre("node-0", "node-1", "node-2", "node-3"));
}

// They share communicators.
TEST_F(WatcherTest, AJobWithoutAnIdIsOneToo) {
  for (const char* id : {"", "none"}) {
    for (int i = 0; i < 6; ++i) job_.process(i).job_id = id;
    watcher_ = MakeWatcher();
    watcher().Round();
    std::vector<std::size_t> endpoints;
    for (const WatchedJob& job : watcher().state()->jobs) endpoints.push_back(job.endpoints.size());
    EXPECT_THAT(endpoints, testing::UnorderedElementsAre(2, 4)) << id;
  }
}

// Node 0 has so many other communicators that its summary leaves theirs out.
TEST_F(WatcherTest, ACommunicatorThatStandsIsNeverLeftOut) {
  for (int i = 0; i < 6; ++i) job_.process(i).job_id = "";
  for (uint64_t id = 1; id <= 200; ++id) job_.AddCommunicator(id << 8, {0}, 8, 8);
  Hang();
  RunFor(seconds(14));
  EXPECT_THAT(Metrics(), HasSubstr("Hostname=\"node-2\""));
  EXPECT_EQ(watcher().state()->jobs.size(), 2u);
}

// The blocking rank's node leaves the communicator out, and nothing is stalled there.
TEST_F(WatcherTest, NamesARankWhoseNodeLeavesItsCommunicatorOut) {
  for (int i = 0; i < 6; ++i) job_.process(i).job_id = "";
  for (uint64_t id = 1; id <= 200; ++id) job_.AddCommunicator(id << 8, {2}, 8, 8);
  Hang();
  RunFor(seconds(14));
  EXPECT_THAT(Hangs(Metrics()), testing::ElementsAre(HasSubstr("Hostname=\"node-2\"")));
  // Later polls include that node from the start.
  endpoints_->asked.clear();
  RunFor(seconds(10));
  EXPECT_THAT(endpoints_->asked, testing::Contains("node-2"));
  EXPECT_EQ(std::count(endpoints_->asked.begin(), endpoints_->asked.end(), "node-0"), 1);
  EXPECT_THAT(Hangs(Metrics()), testing::ElementsAre(HasSubstr("Hostname=\"node-2\"")));
}

// Graphs are replayed no more, and NVML isn't there.
TEST_F(WatcherTest, AJobOfWhichNothingIsSeenAnyMoreIsNotOk) {
  RunFor(seconds(4));
  for (const int rank : {0, 1}) {
    CommunicatorSnapshot& comm = job_.Of(kOther, rank);
    comm.captured = true;
    comm.work.state = WorkState::kProven;
    comm.work.moved_realtime_ns = job_.now();
  }
  RunFor(seconds(36));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_jobs{state=\"incomplete\"} 1"));
}

// A heterogeneous Slurm job has an ID for each of its parts.
TEST_F(WatcherTest, AJobWithTwoIdsIsOne) {
  job_.process(2).job_id = job_.process(3).job_id = "4713";
  Hang();
  RunFor(seconds(14));
  const auto state = watcher().state();
  ASSERT_EQ(state->jobs.size(), 2u);
  EXPECT_EQ(state->jobs[0].job_id, "4711");
  EXPECT_THAT(state->jobs[0].other_ids, testing::ElementsAre("4713"));
  EXPECT_EQ(state->jobs[0].processes, 4);
  EXPECT_EQ(state->jobs[0].endpoints.size(), 4u);
  EXPECT_EQ(state->jobs[1].job_id, "4712");
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
  JobFilter filter;
  filter.job_id = "4713";
  EXPECT_EQ(watcher().Ask(filter).set.processes.size(), 4u);
}

TEST_F(WatcherTest, GoesByTheEndpointsOwnTime) {
  endpoints_->hang_after_ns = 30 * kSecond;
  RunFor(seconds(3));
  Hang();
  RunFor(seconds(25));
  EXPECT_THAT(Metrics(), Not(HasSubstr("hang_start_timestamp_seconds{")));
  RunFor(seconds(8));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
}

// Any endpoint can claim a job's ID, or many of them.
TEST_F(WatcherTest, AnotherJobsEndpointsSilenceNothing) {
  for (const bool is_in_summary_alone : {true, false}) {
    Spread();
    endpoints_->hang_after_of = {{4, 86400 * kSecond}, {5, 86400 * kSecond}};
    if (is_in_summary_alone) {
      std::string jobs = R"({"job_id":"4711","workload":"","processes":1})";
      for (int i = 0; i < 250; ++i) {
        jobs += R"(,{"job_id":")" + std::to_string(i) + R"(","workload":"","processes":1})";
      }
      endpoints_->garbage[5] = R"({"time":1,"hang_after":86400,"jobs":[)" + jobs + "]}";
    } else {
      job_.process(4).job_id = job_.process(5).job_id = "4711";
    }
    watcher_ = MakeWatcher();
    RunFor(seconds(3));
    Hang();
    RunFor(seconds(14));
    EXPECT_THAT(Metrics(), HasSubstr(kNamed)) << is_in_summary_alone;
    job_.Launch(kComm, 2, "AllReduce");
    for (const int rank : {0, 1, 2, 3}) job_.Complete(kComm, rank);
  }
}

// Each by its own, where endpoints know of several jobs.
TEST_F(WatcherTest, JobsWithDifferentTimesDoNotMix) {
  endpoints_->hang_after_of = {{0, 40 * kSecond}, {1, 40 * kSecond}, {2, 40 * kSecond},
                               {3, 40 * kSecond}, {4, 10 * kSecond}, {5, 10 * kSecond}};
  for (const int process : {4, 5}) job_.process(process).job_id = "4711";
  RunFor(seconds(3));
  Hang();
  job_.Launch(kOther, 0, "AllReduce");
  RunFor(seconds(20));
  EXPECT_THAT(Metrics(), HasSubstr(R"(comm="00000000000000d0",rank="1")"));
  EXPECT_THAT(Metrics(), Not(HasSubstr(R"(comm="00000000000000c0")")));
  RunFor(seconds(40));
  EXPECT_THAT(Metrics(), HasSubstr(R"(comm="00000000000000d0",rank="1")"));
  EXPECT_THAT(Metrics(), HasSubstr(R"(comm="00000000000000c0",rank="2")"));
}

// One node's agent has a longer time, for another job.
TEST_F(WatcherTest, OfAJobsEndpointsTheShortestTimeCounts) {
  endpoints_->hang_after_of = {{1, 3600 * kSecond}, {2, 3600 * kSecond}};
  RunFor(seconds(3));
  Hang();
  RunFor(seconds(14));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
}

TEST_F(WatcherTest, UnlessItIsToldAnother) {
  endpoints_->hang_after_ns = 30 * kSecond;
  hang_after_ = seconds(8);
  Hang();
  RunFor(seconds(11));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
}

TEST_F(WatcherTest, SaysNothingMoreWhenTheJobGoesOn) {
  Hang();
  RunFor(seconds(14));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
  job_.Launch(kComm, 2, "AllReduce");
  for (const int rank : {0, 1, 2, 3}) job_.Complete(kComm, rank);
  RunFor(seconds(3));
  EXPECT_THAT(Metrics(), Not(HasSubstr("hang_start_timestamp_seconds{")));
}

// Two polls that agree may be of two rounds.
TEST_F(WatcherTest, PollsAnUnchangedHangOnce) {
  Hang();
  RunFor(seconds(14));
  endpoints_->asked.clear();
  RunFor(seconds(10));
  EXPECT_EQ(endpoints_->asked.size(), 4U);
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
  // Now for another reason.
  job_.Of(kComm, 2).has_heartbeat = false;
  job_.Of(kComm, 2).driver_error = 700;
  job_.Of(kComm, 2).driver_error_realtime_ns = job_.now() - 60 * kSecond;
  endpoints_->asked.clear();
  RunFor(seconds(10));
  EXPECT_EQ(endpoints_->asked.size(), 8U);
  EXPECT_THAT(Metrics(), HasSubstr("verdict=\"driver_error\""));
}

TEST_F(WatcherTest, SaysThatAJobEndedOrIsUnreachable) {
  RunFor(seconds(5));
  EXPECT_THAT(WatchPage(*watcher().state(), ""), Not(HasSubstr("Ended or unreachable")));
  endpoints_->silent = {0, 1, 2, 3};
  RunFor(seconds(60));
  const std::string page = WatchPage(*watcher().state(), "");
  const auto row_of = [&page](const std::string& job) {
    const std::size_t begin = page.find("<td>" + job + "<td>");
    return page.substr(begin, page.find("\n<tr", begin) - begin);
  };
  EXPECT_THAT(row_of("4711"), HasSubstr("Ended or unreachable"));
  EXPECT_THAT(row_of("4712"), Not(HasSubstr("Ended or unreachable")));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_jobs{state=\"ended\"} 1"));
}

// Lost answers end no alert; endpoints that are gone hold none up.
TEST_F(WatcherTest, BelievesASilentEndpointForAWhile) {
  Hang();
  RunFor(seconds(14));
  endpoints_->silent = {0, 1, 3};
  RunFor(seconds(10));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
  EXPECT_THAT(Metrics(), HasSubstr("nccl_watch_endpoints{state=\"silent\"} 3"));
  RunFor(seconds(660));
  EXPECT_THAT(Metrics(), Not(HasSubstr("hang_start_timestamp_seconds{")));
}

// Its word stands while the same launches wait, with the same labels. Other ranks' silence accuses nobody.
TEST_F(WatcherTest, NamesTheRankWhileItsEndpointIsSilent) {
  Hang();
  RunFor(seconds(14));
  const std::vector<std::string> before = Hangs(Metrics());
  EXPECT_THAT(before, testing::ElementsAre(HasSubstr(kNamed)));
  endpoints_->silent = {1, 2};
  RunFor(seconds(300));
  EXPECT_EQ(Hangs(Metrics()), before);
  EXPECT_THAT(watcher().state()->jobs.front().findings.text, HasSubstr("its endpoint is silent"));
  // They go on, and wait again.
  job_.Launch(kComm, 2, "AllReduce");
  for (const int rank : {0, 1, 2, 3}) job_.Complete(kComm, rank);
  Hang();
  RunFor(seconds(60));
  EXPECT_THAT(Hangs(Metrics()), testing::ElementsAre(HasSubstr("rank_not_seen")));
}

TEST_F(WatcherTest, AnEndpointThatIsGoneDelaysNoVerdictOnItsJob) {
  RunFor(seconds(5));  // the job is well when it is looked at
  Hang();
  endpoints_->silent = {2};
  RunFor(seconds(12));
  EXPECT_THAT(Metrics(), HasSubstr(R"(nccl_job_hang_start_timestamp_seconds{job_id="4711",)"));
}

// The jobs share node 3, so they are looked at together.
TEST_F(WatcherTest, ASilentEndpointOfOneJobDelaysNoVerdictOnAnother) {
  endpoints_.emplace(&job_, std::vector<int>{0, 1, 2, 3, 3, 4});
  Hang();
  RunFor(seconds(60));
  endpoints_->silent = {2};
  job_.Launch(kOther, 0, "AllReduce");  // rank 1 does not come
  RunFor(seconds(12));
  EXPECT_THAT(Metrics(), HasSubstr(R"(nccl_job_hang_start_timestamp_seconds{job_id="4712",)"));
  EXPECT_THAT(Metrics(), HasSubstr(kNamed));
}

TEST_F(WatcherTest, ASecondOneAndANewOneSayTheSame) {
  Hang();
  RunFor(seconds(40));
  const auto second = MakeWatcher();
  second->Round();
  EXPECT_THAT(Series(Metrics()), Not(IsEmpty()));
  EXPECT_EQ(Series(WatchMetrics(*second->state())), Series(Metrics()));
}

TEST_F(WatcherTest, NamesWhoComesLateOverNodes) {
  for (int i = 0; i < 600; ++i) {
    job_.Collective(kComm, "AllReduce", {0, 40 * kMs, 0, 0}, kMs);
    job_.Advance(50 * kMs);
  }
  RunFor(seconds(8));  // one job a round
  EXPECT_THAT(Metrics(), HasSubstr(R"(nccl_job_straggler_ratio{job_id="4711",workload="4711",)"
                                   R"(global_rank="1",Hostname="node-1",gpu="1",pid="101",)"));
}

TEST_F(WatcherTest, JobsThatHangOnPurposeGiveNoSeries) {
  for (int i = 0; i < 4; ++i) job_.process(i).static_labels = "hang_alert=off";
  Hang();
  RunFor(seconds(14));
  EXPECT_THAT(Metrics(), Not(HasSubstr("hang_start_timestamp_seconds{")));
  EXPECT_EQ(watcher().state()->jobs.front().findings.state, JobState::kHang);
}

TEST_F(WatcherTest, LabelsOfTheUserAreThoseOfTheAlert) {
  job_.process(2).static_labels = "workload=llama,team=a";
  for (const int rank : {0, 1, 3}) job_.process(rank).static_labels = "workload=llama,team=b";
  Hang();
  RunFor(seconds(14));
  EXPECT_THAT(Metrics(), HasSubstr(R"(job_id="4711",workload="llama",)"));
  EXPECT_THAT(Metrics(), HasSubstr(R"(team="a")"));
}

TEST_F(WatcherTest, WhatIsNoSummaryIsNoAnswer) {
  for (const char* text :
       {"{", "[]", "7", "{\"time\": \"x\"}",
        "{\"time\":1,\"stands\":7,\"jobs\":[7,{}],\"communicators\":{}}",
        "{\"time\":1e308,\"hang_after\":-1e308,\"stands\":[{\"since\":-1e308}],\"late\":[[]]}"}) {
    endpoints_->garbage[0] = text;
    watcher_ = MakeWatcher();
    RunFor(seconds(5));
    EXPECT_EQ(watcher().state()->answered + watcher().state()->silent.size(), 6u) << text;
  }
}

TEST_F(WatcherTest, SaysWhyNoEndpointCouldBeFound) {
  Watcher::Options options;
  options.find = [](auto*, auto*, std::string* error) {
    *error = "targets.json is not there";
    return false;
  };
  options.clock = [this] { return now_; };
  Watcher watcher(std::move(options));
  watcher.Round();
  EXPECT_EQ(watcher.state()->find_error, "targets.json is not there");
  EXPECT_THAT(WatchMetrics(*watcher.state()), HasSubstr("nccl_watch_find_failed 1"));
}

}  // namespace
}  // namespace nccl_pulse
