// Hangs of made-up jobs without the plugin, as an agent finds them: what RAS, NVML and /proc say is given.
#include "exporter/outside/outside_monitor.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "exporter/base/time.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/facts/outside_ranks.h"
#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/job_verdict.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/job_look.h"
#include "exporter/outside/ras_answer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/outside/made_up_ras.h"

namespace nccl_pulse::outside {
namespace {

constexpr int64_t kSecondNs = 1000000000;
constexpr std::chrono::seconds kHangAfter{10};

constexpr char kRank1HasLaunchedFewer[] =
    "Rank 1 (pid 1001, GPU 1) runs without the plugin, and has launched 10 x AllReduce less than "
    "the others, as NCCL's RAS reports. Ranks 0, 2 and 3 wait in AllReduce.";

class OutsideMonitorTest : public ::testing::Test {
 public:
  OutsideMonitorTest() {
    for (int i = 0; i < 4; ++i) {
      HostProcess process;
      process.pid = process.own_pid = 1000 + i;
      process.state = RunState::kRunning;
      process.user = 77;
      processes.push_back(process);
      gpus.push_back({i, GpuUse::kBusy, {1000 + i}});
    }
  }

  Sources SourcesHere() {
    Sources sources;
    sources.processes = [this](const std::vector<int32_t>* pids) {
      ++read;
      if (pids != nullptr) pids_read = *pids;
      return HostProcesses{processes, {}, 0};
    };
    sources.gpus = [this](int64_t) { return gpus; };
    sources.ask_ras = [this](const RasListener&, std::size_t) {
      ++asked;
      std::vector<MadeUpCommunicator> all = others;
      all.push_back(world);
      return RasReport{RasText(all), "", true};
    };
    sources.now_realtime_ns = [this] { return now_ns; };
    sources.addresses = {"10.0.3.7"};
    sources.hostname = "node-7";
    return sources;
  }

  // Rounds as an agent makes them.
  SnapshotSet Go(int seconds) {
    for (int i = 0; i < seconds; i += 2) {
      watch.Round();
      now_ns += 2 * kSecondNs;
    }
    return watch.Snapshots(now_ns);
  }

  // The verdict is valid until the next call.
  JobVerdict Judge(SnapshotSet set) {
    judged = std::move(set);
    result = Diagnosis(kHangAfter).Update(judged, now_ns);
    return JudgeJob(judged, result, now_ns);
  }

  std::vector<HostProcess> processes;
  std::vector<HostGpu> gpus;
  MadeUpCommunicator world = World(4, 14000);
  std::vector<MadeUpCommunicator> others;  // of other jobs
  std::vector<int32_t> pids_read;
  int read = 0;
  std::atomic<int> asked{0};
  int64_t now_ns = int64_t{1760000000} * kSecondNs;
  SnapshotSet judged;
  DiagnosisResult result;
  OutsideMonitor watch{[] { return kHangAfter; }, SourcesHere()};
};

TEST_F(OutsideMonitorTest, AHealthyJobIsNeverAsked) {
  for (HostGpu& gpu : gpus) gpu.use = GpuUse::kMixed;
  EXPECT_TRUE(Go(300).processes.empty());
  for (HostGpu& gpu : gpus) gpu.use = GpuUse::kIdle;
  EXPECT_TRUE(Go(300).processes.empty());
  EXPECT_EQ(asked, 0);
}

// Reading /proc costs the job little, but not nothing.
TEST_F(OutsideMonitorTest, ProcessesAreListedAsTheyComeAndEachHalfMinute) {
  for (HostGpu& gpu : gpus) gpu.use = GpuUse::kMixed;
  EXPECT_FALSE(watch.Processes().has_value());
  processes[3].has_plugin = true;
  Go(2);
  ASSERT_TRUE(watch.Processes().has_value());
  EXPECT_EQ(watch.Processes()->size(), 3U);
  EXPECT_EQ(std::exchange(read, 0), 1);
  Go(20);
  EXPECT_EQ(read, 0);
  processes.pop_back();
  gpus[3].pids.clear();
  Go(2);
  EXPECT_EQ(pids_read, (std::vector<int32_t>{1000, 1001, 1002}));
  processes[0].has_plugin = true;  // loaded with the first communicator
  Go(32);
  EXPECT_EQ(watch.Processes()->size(), 2U);
  EXPECT_EQ(read, 2);
}

TEST_F(OutsideMonitorTest, ARankThatHasLaunchedFewer) {
  world.ranks[1].all_reduces = 13990;
  gpus[1].use = GpuUse::kIdle;
  const SnapshotSet set = Go(10);
  ASSERT_EQ(set.processes.size(), 4U);
  EXPECT_EQ(pids_read, (std::vector<int32_t>{1000, 1001, 1002, 1003}));
  const ProcessSnapshot& process = set.processes[0];
  EXPECT_TRUE(process.is_from_outside);
  EXPECT_EQ(process.hostname, "node-7");
  EXPECT_EQ(process.user, 77);
  const JobVerdict verdict = Judge(set);
  ASSERT_EQ(verdict.roots.size(), 1U);
  EXPECT_EQ(verdict.roots[0].verdict, HangVerdict::kRankNotCalled);
  EXPECT_EQ(verdict.roots[0].text, kRank1HasLaunchedFewer);
  EXPECT_EQ(FirstStep(verdict.roots[0]).rfind("py-spy dump --pid 1001 on node-7", 0), 0U);
  // It stands as long as the GPUs wait.
  EXPECT_EQ(Judge(Go(60)).roots.size(), 1U);
  const int so_far = asked;
  Go(60);
  EXPECT_LE(asked - so_far, 2 * 12);
}

TEST_F(OutsideMonitorTest, AnIdleGpuAmongBusyOnes) {
  world = World(4, 0);
  gpus[2].use = GpuUse::kIdle;
  const JobVerdict verdict = Judge(Go(12));
  ASSERT_EQ(verdict.roots.size(), 1U);
  EXPECT_EQ(verdict.roots[0].text,
            "Rank 2 (pid 1002, GPU 2) runs without the plugin, and its GPU runs nothing while the "
            "others are busy, as NVML reports. Ranks 0, 1 and 3 wait.");
}

TEST_F(OutsideMonitorTest, AStoppedProcess) {
  world.ranks[2].is_missing = true;
  processes[2].state = RunState::kStopped;
  gpus[2].use = GpuUse::kIdle;
  const JobVerdict verdict = Judge(Go(12));
  ASSERT_EQ(verdict.roots.size(), 1U);
  EXPECT_EQ(verdict.roots[0].verdict, HangVerdict::kProcessStopped);
  EXPECT_EQ(verdict.roots[0].ranks[0].process->pid, 1002);
}

TEST_F(OutsideMonitorTest, AStoppedProcessOfRanksThatShareAGpu) {
  for (MadeUpRank& rank : world.ranks) rank.gpu = 0;
  world.ranks[2].is_missing = true;
  processes[2].state = RunState::kFrozen;
  gpus = {{0, GpuUse::kBusy, {999, 1000, 1001, 1002, 1003}}};  // and a server of MPS
  const JobVerdict verdict = Judge(Go(12));
  ASSERT_EQ(verdict.roots.size(), 1U);
  EXPECT_EQ(verdict.roots[0].verdict, HangVerdict::kProcessStopped);
  EXPECT_EQ(verdict.roots[0].ranks[0].process->pid, 1002);
  EXPECT_EQ(watch.Processes()->at(2).stopped, "frozen by its cgroup");
}

// The page, `pulse status` and `pulse watch` read these snapshots, or their message.
TEST_F(OutsideMonitorTest, SaysWhatDiagnoseSaysOfTheSameMoment) {
  const auto set_of = [this](const SnapshotSet& set) {
    SnapshotMessage message;
    std::string error;
    EXPECT_TRUE(ReadSnapshots(WriteSnapshots(set, now_ns, 0), now_ns, 1 << 20, &message, &error));
    return message.set;
  };
  const auto diagnose = [this] {
    Sources sources = SourcesHere();
    sources.wait = [this](std::chrono::milliseconds) { now_ns += 10 * kSecondNs; };
    Looks looks = LookFromOutside(Options(), sources);
    EXPECT_EQ(looks.jobs.size(), 1U);
    return looks.jobs.at(0).health;
  };
  struct Case {
    const char* note;
    std::function<void()> change;
  };
  const Case cases[] = {
      {"Rank 2 (10.0.3.7, GPU 2, pid 1002) is frozen by its cgroup.",
       [this] { processes[3].state = RunState::kFrozen; }},
      {"Rank 2 (10.0.3.7, GPU 2, pid 1002) is held by a debugger.",
       [this] { processes[3].state = RunState::kTraced; }},
      {"Rank 3 (10.0.3.9, GPU 3, pid 1003) does not answer NCCL's RAS (stopped, gone or "
       "unreachable).",
       [this] {
         world.ranks[3].host = "10.0.3.9";
         world.ranks[3].is_missing = true;
         processes.pop_back();
         gpus.pop_back();
       }},
      {"Rank 0 has launched 10 Broadcast, another one 20. Its root needn't wait for them.",
       [this] {
         for (MadeUpRank& rank : world.ranks) rank.broadcasts = rank.rank == 0 ? 10 : 20;
       }},
  };
  HostProcess other = processes[0];
  other.pid = other.own_pid = 999;
  processes.insert(processes.begin(), other);
  const auto saved = processes;
  for (const Case& each : cases) {
    SCOPED_TRACE(each.note);
    processes = saved;
    world = World(4, 14000);
    // Another program shares the GPU of rank 1: which rank waits isn't known.
    gpus = {{0, GpuUse::kMixed, {1000}},
            {1, GpuUse::kBusy, {999, 1001}},
            {2, GpuUse::kMixed, {1002}},
            {3, GpuUse::kMixed, {1003}}};
    each.change();
    OutsideMonitor own{[] { return kHangAfter; }, SourcesHere()};
    own.Round();
    now_ns += 10 * kSecondNs;
    own.Round();
    const SnapshotSet set = set_of(own.Snapshots(now_ns));
    const Health page = HealthOf(set, Diagnosis(kHangAfter).Update(set, now_ns), now_ns);
    Health said = diagnose();
    EXPECT_THAT(said.notes, testing::Contains(each.note));
    said.notes.insert(said.notes.begin(), said.summary);
    EXPECT_EQ(page.notes, said.notes);
    EXPECT_EQ(page.status, HealthStatus::kIncomplete);
    EXPECT_EQ(page.status, said.status);
    EXPECT_EQ(page.summary,
              "No hang is suspected, but a job without the plugin is not known to progress.");
    const auto list = own.Processes();
    for (const ProcessWithoutPlugin& listed : *list) {
      const auto found =
          std::find_if(processes.begin(), processes.end(),
                       [&](const HostProcess& process) { return process.pid == listed.pid; });
      EXPECT_EQ(listed.stopped, WhyNotRunning(found->state));
    }
  }
}

// Between two readings of /proc for the list, a poll sees what becomes of a process.
TEST_F(OutsideMonitorTest, TheListIsOfTheLastPoll) {
  Go(2);
  processes[2].state = RunState::kFrozen;
  Go(10);
  EXPECT_EQ(watch.Processes()->at(2).stopped, "frozen by its cgroup");
}

TEST_F(OutsideMonitorTest, AHangThatEndsIsWithdrawnAndTheNextOneOfItsKindIsUsual) {
  world.ranks[1].all_reduces = 13990;
  gpus[1].use = GpuUse::kIdle;
  EXPECT_FALSE(Judge(Go(30)).roots.empty());
  for (HostGpu& gpu : gpus) gpu.use = GpuUse::kMixed;
  EXPECT_TRUE(Go(2).processes.empty());
  for (HostGpu& gpu : gpus) gpu.use = GpuUse::kBusy;
  gpus[1].use = GpuUse::kIdle;
  const JobVerdict again = Judge(Go(12));
  ASSERT_EQ(again.roots.size(), 1U);
  EXPECT_TRUE(again.roots[0].is_usual);
  // Longer than before, it isn't.
  const JobVerdict longer = Judge(Go(60));
  ASSERT_EQ(longer.roots.size(), 1U);
  EXPECT_FALSE(longer.roots[0].is_usual);
}

// Its GPUs are busy and use no memory, and counts move: RAS is left alone.
TEST_F(OutsideMonitorTest, AJobThatMovesIsLeftAlone) {
  for (int i = 0; i < 120; i += 2) {
    for (MadeUpRank& rank : world.ranks) rank.all_reduces += 100;
    EXPECT_TRUE(Go(2).processes.empty());
  }
  EXPECT_LE(asked, 16);
}

TEST_F(OutsideMonitorTest, AJobThatMovesHidesNoHangOfAnother) {
  others = {World(2, 100)};
  others[0].hash = "0x77";
  for (int i = 0; i < 2; ++i) {
    others[0].ranks[i].pid = 1004 + i;
    others[0].ranks[i].gpu = 4 + i;
    HostProcess process = processes[0];
    process.pid = process.own_pid = 1004 + i;
    processes.push_back(process);
    gpus.push_back({4 + i, GpuUse::kMixed, {1004 + i}});
  }
  world.ranks[1].all_reduces = 13990;
  gpus[1].use = GpuUse::kIdle;
  for (int i = 0; i < 12; i += 2) {
    for (MadeUpRank& rank : others[0].ranks) rank.all_reduces += 100;
    Go(2);
  }
  const JobVerdict verdict = Judge(watch.Snapshots(now_ns));
  ASSERT_EQ(verdict.roots.size(), 1U);
  EXPECT_EQ(verdict.roots[0].ranks[0].process->pid, 1001);
}

TEST_F(OutsideMonitorTest, JobsWithThePluginAreNotAskedFor) {
  for (HostProcess& process : processes) process.has_plugin = true;
  Go(60);
  EXPECT_EQ(asked, 0);
}

// Rank 0 has the plugin and the others have not. RAS has counted what it captured, too.
class MixedJob : public OutsideMonitorTest {
 protected:
  MixedJob() {
    processes[0].has_plugin = true;
    for (MadeUpRank& rank : world.ranks) rank.all_reduces = 14005;
    world.ranks[1].all_reduces = 13995;
    gpus[1].use = GpuUse::kIdle;
  }

  ProcessSnapshot Measured(uint64_t comm_id) const {
    ProcessSnapshot process;
    process.hostname = "node-7";
    process.pid = process.seen_pid = 1000;
    process.poller = PollerState::kRunning;
    process.last_poll_realtime_ns = now_ns;
    CommunicatorSnapshot& own = process.communicators.emplace_back();
    own.comm_id = comm_id;
    own.nranks = 4;
    own.nnodes = 1;
    own.gpu = "0";
    own.init_realtime_ns = now_ns - 3600 * kSecondNs;
    own.calls = {{"AllReduce", 3, "", false, 4000, 0}, {"AllReduce", 7, "", false, 10000, 0}};
    own.last_call_op = "AllReduce";
    own.last_call_size_class = 7;
    own.launches = 14000;
    own.launches_completed = 13990;
    own.has_heartbeat = true;
    own.oldest_inflight_realtime_ns = now_ns - 12 * kSecondNs;
    return process;
  }
};

TEST_F(MixedJob, OnTheAgentsPage) {
  SnapshotSet set = Go(12);
  ASSERT_EQ(set.processes.size(), 4U);
  set.processes.push_back(Measured(set.processes[0].communicators[0].comm_id));
  JoinOutsideRanks(&set);
  ASSERT_EQ(set.processes.size(), 4U);
  const JobVerdict verdict = Judge(set);
  ASSERT_EQ(verdict.roots.size(), 1U);
  EXPECT_EQ(verdict.roots[0].text, kRank1HasLaunchedFewer);
}

// `pulse diagnose` on the node: the endpoint knows rank 0 alone.
TEST_F(MixedJob, BesideWhatAnEndpointAnswers) {
  now_ns = RealtimeNs() - 14 * kSecondNs;
  JobLookOptions options;
  options.outside = Go(12).processes;
  ASSERT_EQ(options.outside.size(), 4U);
  SnapshotSet known;
  known.processes.push_back(Measured(options.outside[0].communicators[0].comm_id));
  options.pause = std::chrono::milliseconds(0);
  options.ask = [&known](const auto& requests, const auto& /*client*/, const auto& done) {
    known.processes[0].last_poll_realtime_ns = RealtimeNs();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      FleetAnswer answer;
      answer.status = 200;
      answer.body = WriteSnapshots(known, RealtimeNs(), 10 * kSecondNs);
      done(i, answer);
    }
  };
  const JobLook look = LookAtJob({Address()}, options);
  ASSERT_EQ(look.verdict.roots.size(), 1U);
  EXPECT_EQ(look.verdict.roots[0].ranks[0].rank, 1);
  const std::string& text = look.verdict.roots[0].text;
  EXPECT_NE(text.find("has launched 10 x AllReduce less than the others"), text.npos) << text;
}

// Two agents know a rank by RAS, and one of them is on its node.
TEST(JoinOutsideRanks, TheOwnNodesAgentKnowsMore) {
  SnapshotSet set;
  for (const int32_t seen_pid : {0, 1001}) {
    ProcessSnapshot process;
    process.is_from_outside = true;
    process.pid = 1001;
    process.seen_pid = seen_pid;
    process.communicators.emplace_back().comm_id = 5;
    set.processes.push_back(process);
  }
  JoinOutsideRanks(&set);
  ASSERT_EQ(set.processes.size(), 1U);
  EXPECT_EQ(set.processes[0].seen_pid, 1001);
}

}  // namespace
}  // namespace nccl_pulse::outside
