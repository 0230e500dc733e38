// Verdicts on made-up jobs without the plugin, by the engine that judges all jobs: what RAS, NVML and
// /proc say is given, and a clock that only waits.
#include "exporter/outside/outside_look.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/fleet/job_report.h"
#include "exporter/outside/outside_words.h"
#include "exporter/outside/ras_answer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/outside/made_up_ras.h"

namespace nccl_pulse::outside {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kHere[] = "10.0.3.7";

std::vector<int32_t> Named(const JobLook& look,
                           std::vector<JobRank> JobRoot::*list = &JobRoot::ranks) {
  std::vector<int32_t> ranks;
  for (const JobRoot& root : look.verdict.roots) {
    for (const JobRank& rank : root.*list) ranks.push_back(rank.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int32_t> Perhaps(const JobLook& look) { return Named(look, &JobRoot::perhaps); }

// Four ranks on this host, whose processes and GPUs are numbered alike, unless a test changes it.
struct Host {
  std::vector<MadeUpCommunicator> before, after;
  std::vector<HostProcess> processes, unloaded;
  std::size_t unread = 0;
  std::vector<HostGpu> gpus;
  Options options;
  // Called for each question, by number from 0.
  std::function<RasReport(int)> answer;
  std::atomic<int> asked{0};
  std::atomic<int64_t> now_ns{int64_t{1760000000} * 1000000000};
  std::atomic<bool> has_waited{false};
  std::mutex mutex;
  std::set<std::string> addresses_asked;
  std::size_t most_bytes_asked = 0;

  explicit Host(int ranks = 4, uint64_t all_reduces = 14000) {
    before = {World(ranks, all_reduces)};
    for (int i = 0; i < ranks; ++i) {
      HostProcess process;
      process.pid = process.own_pid = 1000 + i;
      process.state = RunState::kRunning;
      process.world_size = absl::StrCat(ranks);
      processes.push_back(process);
      gpus.push_back({i, GpuUse::kBusy, {1000 + i}});
    }
    answer = [this](int) { return RasReport{RasText(Now(), false), "", true}; };
  }

  // Of both answers.
  MadeUpRank& Rank(int rank, int communicator = 0) { return before[communicator].ranks[rank]; }
  // Returns a communicator of the second answer, which else repeats the first one.
  MadeUpCommunicator& After(int communicator = 0) {
    if (after.empty()) after = before;
    return after[communicator];
  }
  const std::vector<MadeUpCommunicator>& Now() const {
    return has_waited && !after.empty() ? after : before;
  }
  void UseAllGpus(GpuUse use) {
    for (HostGpu& gpu : gpus) gpu.use = use;
  }
  void PutBehind(int rank) {
    Rank(rank).all_reduces = 13990;
    gpus[rank].use = GpuUse::kIdle;
  }
  void End(int rank) {
    Rank(rank).is_missing = true;
    processes.erase(processes.begin() + rank);
    gpus[rank] = {rank, GpuUse::kUnknown, {}};
  }
  void MoveRank3ToAnotherHost() {
    Rank(3).host = "10.0.3.8";
    processes.pop_back();
    gpus.pop_back();
  }
  void CreateCommunicator() { before.emplace_back().hash = "0x0"; }

  Looks Look() {
    Sources sources;
    sources.processes = [this](const std::vector<int32_t>*) {
      return HostProcesses{processes, unloaded, unread};
    };
    sources.gpus = [this](int64_t) { return gpus; };
    sources.ask_ras = [this](const RasListener& listener, std::size_t most_bytes) {
      const std::lock_guard<std::mutex> lock(mutex);
      addresses_asked.insert(listener.address.name());
      most_bytes_asked = most_bytes;
      return answer(asked++);
    };
    sources.wait = [this](std::chrono::milliseconds time) {
      now_ns += std::chrono::nanoseconds(time).count();
      has_waited = true;
    };
    sources.now_realtime_ns = [this] { return now_ns.load(); };
    sources.addresses = {kHere, "192.0.2.2", "127.0.0.1"};
    sources.hostname = "node-7";
    return LookFromOutside(options, sources);
  }

  // Of the only job.
  std::string Sentence() {
    looks = Look();
    EXPECT_EQ(looks.jobs.size(), 1U);
    return looks.jobs.empty() ? "" : JobSentence(looks.jobs.front());
  }
  std::vector<int32_t> NamedRanks() {
    Sentence();
    return Named(looks.jobs.at(0));
  }
  Looks looks;
};

struct OutsideLookTest : testing::Test {
  Host host;
};

TEST_F(OutsideLookTest, ARankThatHasLaunchedFewer) {
  host.PutBehind(1);
  EXPECT_EQ(host.Sentence(),
            "HANG  rank 1 (10.0.3.7, GPU 1, pid 1001) of a job without NCCL Pulse has launched "
            "13,990 AllReduce, the others 14,000, and nothing has moved for 10 s. Its GPU runs "
            "nothing; 3 others are busy. Next: py-spy dump --pid 1001 on 10.0.3.7.");
  const std::string text = JobText(host.looks.jobs[0]);
  EXPECT_THAT(text, HasSubstr("\n      From NCCL's RAS (2.28.9), NVML and /proc. Sizes, times and "
                              "calls in graphs need the plugin: NCCL_PROFILER_PLUGIN=pulse.\n"));
  EXPECT_THAT(text, HasSubstr("Known bug of NCCL 2.28.9: RAS' text report"));
  EXPECT_EQ(FindingOfJob(host.looks.jobs[0]), JobFinding::kHang);
}

// A rank may wait for the other in a Recv, which RAS doesn't count.
TEST_F(OutsideLookTest, RanksThatHaveLaunchedFewerWithoutNvmlsWord) {
  for (const int rank : {1, 2}) host.Rank(rank).all_reduces = 13990;
  host.gpus = {{0, GpuUse::kUnknown, {1000, 1001, 1002, 1003}}};
  EXPECT_EQ(host.Sentence(),
            "HANG  rank 1 (10.0.3.7, GPU 0, pid 1001); rank 2 (10.0.3.7, GPU 0, pid 1002) of a job "
            "without NCCL Pulse have launched 13,990 AllReduce, the others 14,000, and nothing has "
            "moved for 10 s. Which of them waits for another can't be seen. Next: compare the "
            "stacks of its ranks (py-spy dump).");
  EXPECT_TRUE(Named(host.looks.jobs[0]).empty());
}

// An AllGather that the others don't call: NCCL 2.31.2, four ranks on one GPU.
TEST_F(OutsideLookTest, ARankAheadOfAllOthersWithoutNvmlsWord) {
  for (const int rank : {0, 2, 3}) host.Rank(rank).all_reduces = 13990;
  host.gpus = {{0, GpuUse::kUnknown, {1000, 1001, 1002, 1003}}};
  EXPECT_THAT(host.Sentence(),
              HasSubstr("have launched 13,990 AllReduce, the others 14,000, and nothing has moved "
                        "for 10 s. Or rank 1 (10.0.3.7, GPU 0, pid 1001) has called something "
                        "else: that can't be seen. Next: compare the stacks"));
  EXPECT_THAT(Perhaps(host.looks.jobs[0]), ElementsAre(0, 1, 2, 3));
}

// RAS counts neither Send and Recv nor replays of graphs: NVML tells.
TEST_F(OutsideLookTest, AnIdleGpuAmongBusyOnes) {
  for (const uint64_t counts : {uint64_t{0}, uint64_t{14000}}) {
    Host host(4, counts);
    host.gpus[1].use = GpuUse::kIdle;
    EXPECT_EQ(host.Sentence(),
              "HANG  rank 1 (10.0.3.7, GPU 1, pid 1001) of a job without NCCL Pulse has a GPU that "
              "runs nothing, while 3 others are busy, and nothing has moved for 10 s. " +
                  std::string(counts == 0 ? "" : "All have launched as many collectives. ") +
                  "Next: py-spy dump --pid 1001 on 10.0.3.7.");
  }
}

// Answers of NCCL 2.28.9 in PyTorch jobs on two H200: rank 1 on a GPU with an error, and rank 1 in an
// exit handler, with the comma that NCCL forgets.
TEST_F(OutsideLookTest, RecordedAnswers) {
  constexpr std::tuple<const char*, int32_t, const char*> kRecorded[] = {
      {"behind", 26534, "has launched 3,410 AllReduce, the others 3,420"},
      {"silent", 25870, "does not answer NCCL's RAS, though its process runs"}};
  for (const auto& [name, pid, said] : kRecorded) {
    std::ifstream file(absl::StrCat("tests/outside/answers/", name, ".json"));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    Host host(2);
    host.answer = [&text = text](int) { return RasReport{text, "", true}; };
    for (int i = 0; i < 2; ++i) {
      host.processes[i].pid = host.processes[i].own_pid = host.gpus[i].pids[0] = pid - 1 + i;
    }
    host.gpus[1].use = GpuUse::kIdle;
    EXPECT_THAT(host.Sentence(), HasSubstr(absl::StrCat("HANG  rank 1 (192.0.2.2, GPU 1, pid ", pid,
                                                        ") of a job without NCCL Pulse ", said,
                                                        ", and nothing has moved for 10 s.")));
    EXPECT_THAT(Named(host.looks.jobs[0]), ElementsAre(1));
  }
}

TEST_F(OutsideLookTest, OfTwoRanksTheIdleOne) {
  Host host(2, 0);
  host.gpus[0].use = GpuUse::kIdle;
  EXPECT_THAT(host.NamedRanks(), ElementsAre(0));
}

TEST_F(OutsideLookTest, MostIdleNamesNobody) {
  for (int i = 0; i < 3; ++i) host.gpus[i].use = GpuUse::kIdle;
  EXPECT_EQ(host.Sentence().substr(0, 12), "INCOMPLETE  ");
  EXPECT_TRUE(Named(host.looks.jobs[0]).empty());
}

TEST_F(OutsideLookTest, AStoppedProcess) {
  host.Rank(2).is_missing = true;
  host.processes[2].state = RunState::kStopped;
  host.gpus[2].use = GpuUse::kIdle;
  EXPECT_EQ(host.Sentence(),
            "HANG  rank 2 (10.0.3.7, GPU 2, pid 1002) of a job without NCCL Pulse is stopped by a "
            "signal, "
            "and nothing has moved for 10 s. Next: cat /proc/1002/status /proc/1002/stack on "
            "10.0.3.7 (stopped? a debugger? a driver call?).");
}

// A debugger at a rank that waits for another one.
TEST_F(OutsideLookTest, AStoppedProcessWhoseGpuWaitsIsNotTheRoot) {
  const auto named = [this] {
    host.Sentence();
    return Named(host.looks.jobs.at(0));
  };
  host.Rank(3).is_missing = true;
  host.processes[3].state = RunState::kTraced;
  host.Rank(2).all_reduces = 13999;
  host.gpus[2].use = GpuUse::kIdle;
  EXPECT_EQ(named(), std::vector<int32_t>{2});
  // A stopped rank's own proxy thread may have to move the data that all wait for.
  host.Rank(2).all_reduces = 14000;
  EXPECT_EQ(named(), std::vector<int32_t>{3});
}

TEST_F(OutsideLookTest, AProcessThatIsGone) {
  host.End(2);
  EXPECT_EQ(host.Sentence(),
            "HANG  rank 2 (10.0.3.7, GPU 2, pid 1002) of a job without NCCL Pulse has ended (its "
            "pid is gone, and NCCL's RAS gets no answer), and nothing has moved for 10 s. Next: "
            "its log, and dmesg on 10.0.3.7 (killed? out of memory?).");
}

// A driver call holds the memory map of a process, so its files in /proc don't answer.
TEST_F(OutsideLookTest, AProcessThatCantBeReadIsNotGone) {
  host.Rank(2).is_missing = true;
  host.processes.erase(host.processes.begin() + 2);
  host.unread = 1;
  EXPECT_THAT(host.Sentence(), HasSubstr("rank 2 (10.0.3.7, GPU 2, pid 1002) of a job without NCCL "
                                         "Pulse does not answer NCCL's RAS (stopped, gone or "));
  EXPECT_THAT(Named(host.looks.jobs[0]), ElementsAre(2));
}

TEST_F(OutsideLookTest, AStoppedProcessAfterAShortThreshold) {
  host.options.hang_after = std::chrono::seconds(2);
  host.processes[2].state = RunState::kStopped;
  host.gpus[2].use = GpuUse::kIdle;
  for (const bool is_missing : {true, false}) {
    host.Rank(2).is_missing = is_missing;
    EXPECT_THAT(host.Sentence(), HasSubstr("HANG  rank 2 (10.0.3.7, GPU 2, pid 1002)"));
    EXPECT_THAT(host.Sentence(), HasSubstr("is stopped by a signal"));
  }
}

// The state of rank 2 is in the verdict, or in the notes, whatever else is known.
TEST_F(OutsideLookTest, EachConditionOfAProcessWithEachUseOfTheGpus) {
  enum class Ras { kAnswers, kSilent, kDead };
  enum class Gpus { kBusy, kSharedBusy, kSharedWithOthers, kCompute, kIdle, kNone };
  constexpr char kStopped[] = "is stopped by a signal";
  constexpr char kTraced[] = "is held by a debugger";
  constexpr char kFrozen[] = "is frozen by its cgroup";
  constexpr char kGone[] = "has ended (its pid is gone, and NCCL's RAS gets no answer)";
  constexpr char kDead[] = "has ended (NCCL's RAS considers it dead)";
  constexpr char kRuns[] = "does not answer NCCL's RAS, though its process runs";
  constexpr char kInDriver[] =
      "does not answer NCCL's RAS, and is in a driver call or I/O (state D)";
  constexpr char kDumps[] = "does not answer NCCL's RAS: it has crashed, and dumps core";
  constexpr char kElsewhere[] = "does not answer NCCL's RAS (stopped, gone or unreachable)";
  enum class Place { kHere, kGone, kElsewhere };
  struct Row {
    const char* name;
    Place place;
    RunState state;
    const char* said[3];  // by what RAS says
    bool can_end[3];      // named without a word of GPUs
  };
  const Row rows[] = {
      {"runs", Place::kHere, RunState::kRunning, {"", kRuns, kRuns}, {}},
      {"D", Place::kHere, RunState::kUninterruptible, {"", kInDriver, kInDriver}, {}},
      {"dumps core", Place::kHere, RunState::kDumpingCore, {"", kDumps, kDumps}, {}},
      {"T", Place::kHere, RunState::kStopped, {kStopped, kStopped, kStopped}, {}},
      {"t", Place::kHere, RunState::kTraced, {kTraced, kTraced, kTraced}, {}},
      {"frozen", Place::kHere, RunState::kFrozen, {kFrozen, kFrozen, kFrozen}, {}},
      {"gone", Place::kGone, RunState::kEnded, {"", kGone, kGone}, {false, true, true}},
      {"on another host",
       Place::kElsewhere,
       RunState::kUnknown,
       {"", kElsewhere, kDead},
       {false, false, true}},
  };
  for (const Row& row : rows) {
    for (const Ras ras : {Ras::kAnswers, Ras::kSilent, Ras::kDead}) {
      for (const Gpus gpus : {Gpus::kBusy, Gpus::kSharedBusy, Gpus::kSharedWithOthers,
                              Gpus::kCompute, Gpus::kIdle, Gpus::kNone}) {
        SCOPED_TRACE(absl::StrCat(row.name, ", RAS ", static_cast<int>(ras), ", GPUs ",
                                  static_cast<int>(gpus)));
        Host host;
        const bool is_shared = gpus == Gpus::kSharedBusy || gpus == Gpus::kSharedWithOthers;
        if (row.place == Place::kElsewhere) host.Rank(2).host = "10.0.3.8";
        for (int i = 0; i < 4; ++i) host.Rank(i).gpu = is_shared ? 0 : i;
        host.Rank(2).is_missing = ras != Ras::kAnswers;
        host.Rank(2).is_dead = ras == Ras::kDead;
        host.processes[2].state = row.state;
        const std::string said = row.said[static_cast<int>(ras)];
        for (HostGpu& gpu : host.gpus) {
          if (gpus == Gpus::kCompute) gpu.use = GpuUse::kMixed;
          if (gpus == Gpus::kIdle) gpu.use = GpuUse::kIdle;
        }
        if (gpus == Gpus::kBusy && !said.empty()) host.gpus[2].use = GpuUse::kIdle;
        if (is_shared) host.gpus = {{0, GpuUse::kBusy, {999, 1000, 1001, 1002, 1003}}};
        if (gpus == Gpus::kSharedWithOthers) {
          host.gpus[0].pids.push_back(1004);
          HostProcess other = host.processes[0];
          other.pid = other.own_pid = 1004;
          other.world_size.clear();
          host.processes.push_back(other);
        }
        if (gpus == Gpus::kNone) host.gpus.clear();
        if (row.place != Place::kHere) host.processes.erase(host.processes.begin() + 2);
        const std::string sentence = host.Sentence();
        const JobLook& look = host.looks.jobs.at(0);
        const bool is_named =
            !said.empty() &&
            (gpus == Gpus::kBusy || gpus == Gpus::kSharedBusy ||
             (row.can_end[static_cast<int>(ras)] && gpus != Gpus::kCompute && gpus != Gpus::kIdle));
        const std::string who =
            absl::StrCat("ank 2 (", host.Rank(2).host, ", GPU ", is_shared ? 0 : 2, ", pid 1002) ");
        const std::string note = absl::StrCat("R", who, said, ".");
        if (is_named) {
          EXPECT_EQ(Named(look), std::vector<int32_t>{2});
          EXPECT_EQ(sentence.substr(0, sentence.find(", and nothing has moved for 10 s.")),
                    absl::StrCat("HANG  r", who, "of a job without NCCL Pulse ", said));
        } else {
          EXPECT_THAT(Named(look), IsEmpty());
          EXPECT_EQ(sentence.substr(0, 4), "INCO");
        }
        EXPECT_EQ(std::count(look.health.notes.begin(), look.health.notes.end(), note),
                  is_named || said.empty() ? 0 : 1);
        if (said.empty()) {
          EXPECT_THAT(look.health.notes, IsEmpty());
        }
      }
    }
  }
}

// When it last answered, it had launched less than the others: they wait for it.
TEST_F(OutsideLookTest, AStoppedProcessThatLaunchedFewerBeforeItWentSilent) {
  host.gpus.clear();
  host.processes[2].state = RunState::kStopped;
  host.Rank(2).all_reduces = 13999;
  host.After().ranks[2].is_missing = true;
  EXPECT_THAT(host.Sentence(), HasSubstr("is stopped by a signal"));
  EXPECT_THAT(Named(host.looks.jobs[0]), ElementsAre(2));
}

// A watchdog ends ranks that wait for one whose host is stuck.
TEST_F(OutsideLookTest, AProcessThatEndedMayHaveWaited) {
  host.Rank(1).all_reduces = 13999;
  host.End(2);
  host.gpus[1].use = GpuUse::kIdle;
  EXPECT_THAT(host.Sentence(), HasSubstr("has launched 13,999 AllReduce, the others 14,000"));
  EXPECT_THAT(Named(host.looks.jobs[0]), ElementsAre(1));
  EXPECT_THAT(host.looks.jobs[0].health.notes,
              testing::Contains("Rank 2 (10.0.3.7, GPU 2, pid 1002) has ended (its pid is gone, "
                                "and NCCL's RAS gets no answer)."));
}

// In a container NVML's indices begin with its own GPUs.
TEST_F(OutsideLookTest, GpusAreFoundByPid) {
  Host host(2, 0);
  for (MadeUpRank& rank : host.before[0].ranks) rank.gpu = 0;
  host.gpus[0].use = GpuUse::kIdle;
  EXPECT_THAT(host.Sentence(), HasSubstr("rank 0 (10.0.3.7, GPU 0, pid 1000)"));
  EXPECT_THAT(Named(host.looks.jobs[0]), ElementsAre(0));
}

// RAS knows the pid in the container only; the next step runs on the host.
TEST_F(OutsideLookTest, PidsOfContainersAreThoseOfTheHost) {
  for (int i = 0; i < 4; ++i) host.Rank(i).pid = host.processes[i].own_pid = 7 + i;
  host.gpus[1].use = GpuUse::kIdle;
  for (const bool is_missing : {false, true}) {
    host.Rank(1).is_missing = is_missing;
    EXPECT_THAT(host.Sentence(), HasSubstr("HANG  rank 1 (10.0.3.7, GPU 1, pid 1001)"));
    EXPECT_THAT(host.Sentence(),
                HasSubstr(is_missing ? "Next: cat /proc/1001/status /proc/1001/stack on 10.0.3.7 "
                                       "(gone? stopped? a driver call?), gdb -p 1001 (in exit()?), "
                                       "and its log."
                                     : "Next: py-spy dump --pid 1001 on 10.0.3.7."));
  }
}

// A root may leave a Broadcast before the others come: it doesn't wait.
TEST_F(OutsideLookTest, CountsThatProveNoWaitAreNoted) {
  host.Rank(0).broadcasts = 10;
  host.UseAllGpus(GpuUse::kMixed);
  EXPECT_EQ(host.Sentence().substr(0, 12), "INCOMPLETE  ");
  EXPECT_THAT(host.looks.jobs[0].health.notes,
              ElementsAre("Ranks 1, 2 and 3 have launched 0 Broadcast, another one 10. Its root "
                          "needn't wait for them."));
}

// The others still compute: whether they come to wait for it isn't known.
TEST_F(OutsideLookTest, AProcessThatIsGoneWhileOthersComputeIsNoHang) {
  host.UseAllGpus(GpuUse::kMixed);
  host.End(2);
  EXPECT_THAT(host.NamedRanks(), IsEmpty());
}

// A rank of a job that does nothing was stopped.
TEST_F(OutsideLookTest, AStoppedProcessOfAnIdleJobIsNoHang) {
  host.processes[2].state = RunState::kStopped;
  host.UseAllGpus(GpuUse::kIdle);
  EXPECT_THAT(host.NamedRanks(), IsEmpty());
}

TEST_F(OutsideLookTest, SeveralRanksAreSaidInThePlural) {
  for (const int rank : {1, 2}) host.Rank(rank).is_missing = true;
  host.processes.erase(host.processes.begin() + 1, host.processes.begin() + 3);
  EXPECT_THAT(host.Sentence(),
              HasSubstr("have ended (their pids are gone, and NCCL's RAS gets no"));
  Host two(2);
  two.Rank(0).all_gathers = two.Rank(1).broadcasts = 1;
  EXPECT_THAT(two.Sentence(), HasSubstr("Their GPUs are busy: their work may wait"));
  two.gpus.clear();
  two.has_waited = false;
  EXPECT_THAT(two.Sentence(), HasSubstr("Their GPUs aren't known here"));
}

// It may be stopped, gone, or cut off: nothing here tells, but RAS may.
TEST_F(OutsideLookTest, ARankOfAnotherHostThatDoesNotAnswer) {
  host.Rank(3).is_missing = true;
  host.MoveRank3ToAnotherHost();
  const std::string who = "HANG  rank 3 (10.0.3.8, GPU 3, pid 1003) of a job without NCCL Pulse ";
  EXPECT_THAT(host.Sentence(),
              HasSubstr(who + "does not answer NCCL's RAS (stopped, gone or unreachable)"));
  host.Rank(3).is_dead = true;
  EXPECT_THAT(host.Sentence(), HasSubstr(who + "has ended (NCCL's RAS considers it dead)"));
}

// The rank's process is stopped between RAS' two answers.
TEST_F(OutsideLookTest, ARankThatStopsAnswering) {
  host.MoveRank3ToAnotherHost();
  host.After().ranks[3].is_missing = true;
  EXPECT_THAT(host.Sentence(), HasSubstr("HANG  rank 3 (10.0.3.8, GPU 3, pid 1003) of a job "
                                         "without NCCL Pulse does not answer NCCL's RAS"));
  // The rank answers again.
  std::swap(host.before, host.after);
  host.has_waited = false;
  EXPECT_THAT(host.NamedRanks(), IsEmpty());
}

// Its process answers, and has destroyed or aborted the communicator, as in exit() or by a watchdog:
// how many calls it had made isn't known.
TEST_F(OutsideLookTest, ARankThatHasLeftIsNoted) {
  host.Rank(2).is_missing = host.Rank(2).has_left = true;
  EXPECT_THAT(host.NamedRanks(), IsEmpty());
  EXPECT_THAT(host.looks.jobs[0].health.notes,
              ElementsAre("Rank 2 (10.0.3.7, GPU 2, pid 1002) has finalized or aborted a "
                          "communicator that others still have."));
  host.Rank(1).all_reduces = 13990;
  host.has_waited = false;
  EXPECT_THAT(host.NamedRanks(), ElementsAre(1));
}

// The job shrinks, and keeps the communicator of all ranks.
TEST_F(OutsideLookTest, RanksThatMoveWithoutALostOneDontWaitForIt) {
  for (const bool has_left : {false, true}) {
    Host host;
    host.Rank(2).is_missing = true;
    host.Rank(2).has_left = has_left;
    MadeUpCommunicator rest = World(4, 200);
    rest.hash = "0x77";
    rest.size = 3;
    rest.ranks.erase(rest.ranks.begin() + 2);
    rest.ranks[2].rank = 2;
    host.before.push_back(rest);
    for (MadeUpRank& rank : host.After(1).ranks) rank.all_reduces += 100;
    if (!has_left) host.processes.erase(host.processes.begin() + 2);
    host.gpus[2] = {2, GpuUse::kIdle, {}};
    EXPECT_EQ(host.Sentence().substr(0, 4), has_left ? "OK  " : "INCO");
    EXPECT_THAT(Named(host.looks.jobs[0]), IsEmpty());
  }
}

// While a communicator is created, RAS blames ranks that are there.
TEST_F(OutsideLookTest, ACommunicatorThatIsBeingCreatedAccusesNobody) {
  host.Rank(1).is_missing = true;
  host.CreateCommunicator();
  EXPECT_THAT(host.NamedRanks(), IsEmpty());
}

TEST_F(OutsideLookTest, AJobThatMoves) {
  for (MadeUpRank& rank : host.After().ranks) rank.all_reduces += 300 + rank.rank;
  EXPECT_EQ(
      host.Sentence(),
      "OK  A job without NCCL Pulse launches collectives: 1 of 1 communicators moved within 10 s.");
  EXPECT_EQ(FindingOfJob(host.looks.jobs[0]), JobFinding::kNone);
}

// A rank may wait in the creation of a communicator, or in the first call on one, where NCCL connects
// the ranks: neither is launched, and RAS doesn't show the former.
TEST_F(OutsideLookTest, AnIdleJobIsNotOk) {
  host.UseAllGpus(GpuUse::kIdle);
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  The GPUs of a job without NCCL Pulse have run nothing for 10 s. It is "
            "idle, or a rank waits for a new communicator, which NCCL's RAS doesn't show. Next: "
            "compare the stacks (py-spy dump).");
}

// Idle GPUs are no proof while a communicator is being created, or where RAS knows nothing.
TEST_F(OutsideLookTest, ACommunicatorThatIsNeverCreatedIsNotOk) {
  host.CreateCommunicator();
  host.UseAllGpus(GpuUse::kIdle);
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  A communicator of a job without NCCL Pulse has been in creation for 10 s, "
            "and its GPUs have run nothing. Which rank hasn't joined isn't known: compare the "
            "stacks (py-spy dump).");
  host.answer = [](int) { return RasReport(); };
  host.has_waited = false;
  for (int i = 0; i < 4; ++i) host.processes[i].global_rank = absl::StrCat(i);
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  The GPUs of 4 processes with NCCL have run nothing for 10 s, and NCCL's "
            "RAS doesn't know them: creating the first communicator, probably. Here are ranks 0, "
            "1, 2 and 3 of 4.");
}

// The environments of the ranks that are here say which rank isn't.
TEST_F(OutsideLookTest, ARankThatNeverComesToTheFirstCommunicator) {
  host.answer = [](int) { return RasReport(); };
  host.UseAllGpus(GpuUse::kIdle);
  for (int i = 0; i < 4; ++i) host.processes[i].global_rank = absl::StrCat(i);
  HostProcess absent = host.processes[1];
  host.processes.erase(host.processes.begin() + 1);
  const auto rest = [this] {
    const std::string sentence = host.Sentence();
    return sentence.substr(sentence.find("Here "));
  };
  EXPECT_EQ(rest(), "Here are ranks 0, 2 and 3 of 4. Rank 1 has no process on this host.");
  for (HostProcess& each : host.processes) each.local_world_size = "4";
  EXPECT_EQ(
      rest(),
      "Here are ranks 0, 2 and 3 of 4. Rank 1 has no process, though this host is to run it.");
  host.unloaded = {absent};
  EXPECT_EQ(rest(), "Here are ranks 0, 2 and 3 of 4. Rank 1 (pid 1001) has not loaded NCCL.");
  // Of two ranks one is here.
  host.unloaded.clear();
  host.processes.resize(1);
  host.processes[0].world_size = host.processes[0].local_world_size = "2";
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  The GPU of a process with NCCL has run nothing for 10 s, and NCCL's RAS "
            "doesn't know it: creating the first communicator, probably. Here is rank 0 of 2. Rank "
            "1 has no process, though this host is to run it.");
  // What an environment says may be anything.
  host.processes[0].global_rank = "2147483647";
  EXPECT_EQ(host.Sentence().find("Here"), std::string::npos);
  host.processes[0].global_rank = "0";
  host.processes[0].world_size = "2147483647";
  host.processes[0].local_world_size = "";
  EXPECT_EQ(host.Look().jobs.size(), 0U);
}

// Ranks of tasks are those of processes unless these have inherited them.
TEST_F(OutsideLookTest, RanksOfTasks) {
  host.answer = [](int) { return RasReport(); };
  host.UseAllGpus(GpuUse::kIdle);
  for (int i = 0; i < 4; ++i) host.processes[i].global_rank = absl::StrCat(i);
  for (HostProcess& each : host.processes) each.is_task_rank = true;
  host.unloaded = {host.processes[1]};     // the task's shell
  HostProcess worker = host.processes[2];  // of a data loader: on no GPU
  worker.pid = worker.own_pid = 2000;
  host.processes.push_back(worker);
  host.processes.erase(host.processes.begin() + 1);
  EXPECT_THAT(host.Sentence(),
              HasSubstr("Here are ranks 0, 2 and 3 of 4. Rank 1 (pid 1001) has not loaded NCCL."));
  // torchrun has started them, or two processes of a task are on GPUs.
  for (const bool is_torchrun : {true, false}) {
    host.processes[0].global_rank = is_torchrun ? "0" : "2";
    host.processes[0].is_task_rank = !is_torchrun;
    EXPECT_EQ(WithoutPlugin(host.processes, host.gpus)[1].global_rank, "");
  }
  EXPECT_THAT(host.Sentence(), Not(HasSubstr("Here")));
}

TEST_F(OutsideLookTest, ProcessesAreListed) {
  host.processes[0].has_plugin = true;
  host.processes[1].is_guess = true;  // another user's, perhaps without NCCL
  host.gpus[2].pids.clear();          // a launcher
  host.gpus[0].pids.push_back(1003);
  host.processes[3].global_rank = "5";
  host.processes[3].nccl_version = "2.28.9";
  const std::vector<ProcessWithoutPlugin> found = WithoutPlugin(host.processes, host.gpus);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, 1003);
  EXPECT_EQ(found[0].global_rank, "5");
  EXPECT_EQ(found[0].nccl_version, "2.28.9");
  EXPECT_EQ(found[0].gpus, (std::vector<int>{0, 3}));
  EXPECT_EQ(WithoutPlugin(host.processes, {}).size(), 2U);
}

// Replays of graphs look so: nothing is counted, and the GPUs use their memory.
TEST_F(OutsideLookTest, GpusThatComputeAreNoHang) {
  host.UseAllGpus(GpuUse::kMixed);
  EXPECT_EQ(host.Sentence().substr(0, 12), "INCOMPLETE  ");
  host.gpus[1].use = GpuUse::kIdle;
  EXPECT_EQ(host.Sentence().substr(0, 12), "INCOMPLETE  ");
}

// They may as well replay CUDA graphs that stay in the cache.
TEST_F(OutsideLookTest, AllBusyWithEqualCountsIsNoHang) {
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  A job without NCCL Pulse has launched no counted collective for 10 s. Its "
            "GPUs are "
            "all busy: they wait for each other, or replay CUDA graphs, which aren't counted.");
}

TEST_F(OutsideLookTest, WithoutNvmlCountsStillTell) {
  host.Rank(1).all_reduces = 13990;
  host.gpus.clear();
  EXPECT_THAT(host.Sentence(), HasSubstr("has launched 13,990 AllReduce, the others 14,000"));
  EXPECT_EQ(Named(host.looks.jobs[0]), (std::vector<int32_t>{1}));
  Host alike(4, 0);
  alike.gpus.clear();
  EXPECT_EQ(alike.Sentence().substr(0, 12), "INCOMPLETE  ");
}

// Ranks 0 and 1, and 2 and 3, are a communicator each, and 0 and 2, and 1 and 3. Rank 3 is behind in
// both of its own; rank 1 waits for it, and 0 for 1.
TEST_F(OutsideLookTest, OverCommunicatorsTheRootIsNamed) {
  host.before.clear();
  const auto pair = [this](const char* hash, int a, int b, uint64_t of_a, uint64_t of_b) {
    MadeUpCommunicator made = World(2, 0);
    made.hash = hash;
    for (const int i : {0, 1}) {
      made.ranks[i].pid = 1000 + (i == 0 ? a : b);
      made.ranks[i].gpu = i == 0 ? a : b;
      made.ranks[i].all_reduces = i == 0 ? of_a : of_b;
    }
    host.before.push_back(made);
  };
  pair("0xa", 0, 1, 51, 50);
  pair("0xb", 1, 3, 71, 70);
  pair("0xc", 2, 3, 91, 90);
  host.gpus[3].use = GpuUse::kIdle;
  EXPECT_THAT(host.Sentence(), HasSubstr("HANG  rank 1 (10.0.3.7, GPU 3, pid 1003)"));
}

// All processes of a user share the port: a stopped one accepts, and does not answer.
TEST_F(OutsideLookTest, AProcessThatDoesNotAnswerIsAskedAgain) {
  host.Rank(1).all_reduces = 13990;
  const auto honest = host.answer;
  host.answer = [honest](int number) {
    return number < 2 ? RasReport{"", "", true} : honest(number);
  };
  EXPECT_THAT(host.Sentence(), HasSubstr("has launched 13,990"));
  EXPECT_TRUE(host.looks.notes.empty());
}

// Every connection is accepted by a process that has not ended yet, and takes all of the patience.
TEST_F(OutsideLookTest, ProcessesThatNeverAnswerDelayNoVerdict) {
  Host host(2);
  host.gpus[1].use = GpuUse::kIdle;
  const int64_t begin_ns = host.now_ns;
  constexpr int64_t kPatienceNs = std::chrono::nanoseconds(kRasPatience).count();
  host.answer = [&host](int) {
    host.now_ns += kPatienceNs / 2;  // two at once
    return RasReport{"", "", true};
  };
  EXPECT_THAT(host.NamedRanks(), ElementsAre(1));
  EXPECT_LE(host.now_ns - begin_ns, 11 * int64_t{1000000000} + 4 * kPatienceNs);
}

// The job before still ends: its processes listen, and NVML lists them. Another job begins.
TEST_F(OutsideLookTest, AnEndingAndABeginningJobHideNoHang) {
  Host host(2);
  host.PutBehind(1);
  host.CreateCommunicator();
  for (HostGpu& gpu : host.gpus) gpu.pids.push_back(900 + gpu.index);
  const auto honest = host.answer;
  host.answer = [honest](int number) {
    return number % 3 != 0 ? RasReport{"", "", true} : honest(number);
  };
  EXPECT_THAT(host.NamedRanks(), ElementsAre(1));
  EXPECT_TRUE(host.looks.notes.empty());
}

TEST_F(OutsideLookTest, AHealthyJobOnTheGpusOfAHungOne) {
  for (const GpuUse use : {GpuUse::kBusy, GpuUse::kMixed}) {
    Host host(4);
    MadeUpCommunicator hung = World(2, 100), healthy = World(2, 200);
    hung.ranks[1].all_reduces = 99;
    healthy.hash = "0xffffffffffffffff";
    for (int i = 0; i < 2; ++i) healthy.ranks[i].pid = 1002 + i;
    host.gpus = {{0, use, {1000, 1002}}, {1, use, {1001, 1003}}};
    host.before = {hung, healthy};
    for (MadeUpRank& rank : host.After(1).ranks) rank.all_reduces += 100;
    const Looks looks = host.Look();
    ASSERT_EQ(looks.jobs.size(), 2U);
    EXPECT_THAT(Named(looks.jobs[0]), ElementsAre(1));
    EXPECT_EQ(JobSentence(looks.jobs[1]).substr(0, 4), "OK  ");
  }
}

TEST_F(OutsideLookTest, CountsThatStepBackAreAskedForAgain) {
  host.Rank(1).all_reduces = 13990;
  const auto honest = host.answer;
  int wrong = 0;
  host.answer = [&](int number) {
    if (!host.has_waited || wrong == 2) return honest(number);
    ++wrong;
    return RasReport{RasText({World(4, 0)}), "", true};
  };
  EXPECT_THAT(host.Sentence(), HasSubstr("has launched 13,990"));
  // One that stays wrong proves nothing.
  Host zero;
  zero.after = {World(4, 0)};
  for (HostGpu& gpu : zero.gpus) gpu.use = GpuUse::kMixed;
  EXPECT_EQ(zero.Sentence().substr(0, 12), "INCOMPLETE  ");
}

// Four ranks each.
std::vector<MadeUpCommunicator> TwoJobs() {
  MadeUpCommunicator second = World(4, 200);
  second.hash = "0xffffffffffffffff";
  for (int i = 0; i < 4; ++i) second.ranks[i].pid = 1004 + i, second.ranks[i].gpu = 4 + i;
  return {World(4, 100), second};
}

TEST_F(OutsideLookTest, EachJobHasAVerdict) {
  Host host(8);
  for (const bool are_apart : {false, true}) {
    host.before = TwoJobs();
    host.after.clear();
    host.Rank(3, 1).all_reduces = 199;
    host.After().ranks[0].all_reduces = 120;
    host.has_waited = false;
    if (are_apart) {
      // Jobs don't know each other: each question is answered by one of them.
      host.answer = [&host](int number) {
        return RasReport{RasText({host.Now()[number / 2 % 2]}), "", true};
      };
    }
    const Looks looks = host.Look();
    ASSERT_EQ(looks.jobs.size(), 2U);
    EXPECT_EQ(JobSentence(looks.jobs[0]).substr(0, 4), "OK  ");
    EXPECT_EQ(Named(looks.jobs[1]), (std::vector<int32_t>{3}));
  }
}

TEST_F(OutsideLookTest, BeforeNccl2287NvmlAndProcTell) {
  host.answer = [](int) { return RasReport{"", "NCCL is older than 2.28.7", true}; };
  for (int i = 0; i < 4; ++i) host.processes[i].global_rank = absl::StrCat(i);
  host.gpus[3].use = GpuUse::kIdle;
  EXPECT_THAT(host.Sentence(), HasSubstr("HANG  global rank 3 (node-7, GPU 3, pid 1003) of a job "
                                         "without NCCL Pulse has a GPU that runs nothing"));
  ASSERT_EQ(host.looks.notes.size(), 1U);
  EXPECT_EQ(host.looks.notes[0], "NCCL's RAS at localhost:28028: NCCL is older than 2.28.7.");
  EXPECT_EQ(host.looks.jobs[0].outside.substr(0, 20), "From NVML and /proc.");
  host.processes[3].state = RunState::kStopped;
  EXPECT_THAT(host.Sentence(), HasSubstr("is stopped by a signal"));
  // Nothing connects to RAS if the library's name has such a version.
  host.asked = 0;
  for (HostProcess& process : host.processes) process.nccl_version = "2.27.7";
  EXPECT_THAT(host.Sentence(), HasSubstr("is stopped by a signal"));
  EXPECT_EQ(host.asked, 0);
  EXPECT_THAT(host.looks.notes,
              ElementsAre("RAS of 4 processes isn't asked: counts need NCCL 2.28.7."));
  host.processes[0].nccl_version = "2.28.7";
  host.Sentence();
  EXPECT_GT(host.asked, 0);
}

// A launcher and PyTorch's workers for data have NCCL loaded, and no context on a GPU.
TEST_F(OutsideLookTest, ProcessesWithoutAGpuAreNoRanks) {
  host.answer = [](int) { return RasReport(); };
  for (int i = 0; i < 20; ++i) {
    HostProcess worker = host.processes[i % 4];
    worker.pid = worker.own_pid = 2000 + i;
    host.processes.push_back(worker);
  }
  host.gpus[0].use = GpuUse::kIdle;
  host.Sentence();
  EXPECT_EQ(host.looks.jobs[0].health.ranks, 4U);
}

TEST_F(OutsideLookTest, ProcessesWithThePluginAreLeftToTheirEndpoint) {
  for (HostProcess& process : host.processes) process.has_plugin = true;
  EXPECT_TRUE(host.Look().jobs.empty());
  EXPECT_EQ(host.asked, 0);
  // One rank without it: the job is judged from outside, too.
  host.processes[1].has_plugin = false;
  host.Rank(1).all_reduces = 13990;
  EXPECT_THAT(host.Sentence(), HasSubstr("rank 1 "));
}

// The process that serves the endpoint is stopped.
TEST_F(OutsideLookTest, ProcessesWhoseEndpointIsSilentAreLookedAt) {
  for (HostProcess& process : host.processes) process.has_plugin = true;
  host.options.is_endpoint_silent = true;
  host.Rank(2).is_missing = true;
  host.processes[2].state = RunState::kStopped;
  host.gpus[2].use = GpuUse::kIdle;
  EXPECT_THAT(host.Sentence(),
              HasSubstr("HANG  rank 2 (10.0.3.7, GPU 2, pid 1002) of a job whose endpoint "
                        "gave no data is stopped by a signal"));
  EXPECT_THAT(JobText(host.looks.jobs[0]),
              HasSubstr("NVML and /proc: the job's endpoint gave no data.\n"));
}

TEST_F(OutsideLookTest, AJobOfOneGpuIsNotMentioned) {
  Host host(1);
  EXPECT_TRUE(host.Look().jobs.empty());
}

// Root connects nowhere else because another user's variable says so.
TEST_F(OutsideLookTest, AddressesOfOtherUsersAreAskedOnThisHostOnly) {
  host.processes[0].ras_address = "10.9.9.9:1234";
  host.processes[0].user = geteuid() + 1;
  host.processes[1].ras_address = "127.0.0.1:29000";
  host.processes[1].user = geteuid() + 1;
  host.processes[2].ras_address = "10.0.3.7:29001";
  host.processes[2].user = geteuid();
  host.processes[3].ras_address = "a/b";
  host.processes[3].user = geteuid();
  EXPECT_THAT(host.Look().notes,
              testing::Contains("RAS of 1 process isn't asked: NCCL_RAS_ADDR of pid 1003 is not "
                                "HOST:PORT: a/b."));
  EXPECT_EQ(host.addresses_asked, (std::set<std::string>{"127.0.0.1:29000", "10.0.3.7:29001"}));
  host.addresses_asked.clear();
  host.processes[3].ras_address = "0.0.0.0:29002";
  host.processes[3].user = geteuid() + 1;
  EXPECT_THAT(host.Look().notes,
              testing::Contains("RAS of 1 process isn't asked: another user has set NCCL_RAS_ADDR, "
                                "to no address of this host. Next: pulse diagnose as that user."));
  EXPECT_EQ(host.addresses_asked.count("0.0.0.0:29002"), 1U);
  host.addresses_asked.clear();
  host.processes[3].network = 5;  // its own loopback
  host.Look();
  EXPECT_EQ(host.addresses_asked.count("0.0.0.0:29002"), 0U);
  host.addresses_asked.clear();
  host.options.ras.asks_processes = false;
  host.Look();
  EXPECT_TRUE(host.addresses_asked.empty());
}

// Beyond the limit it is said.
TEST_F(OutsideLookTest, MoreAddressesOrNamespacesThanAreAsked) {
  Host host(20);
  for (int i = 0; i < 20; ++i) {
    host.processes[i].ras_address = absl::StrCat("127.0.0.1:", 29000 + i);
  }
  const std::string said =
      "RAS of 4 processes isn't asked: at most 16 addresses and network namespaces are. "
      "Next: kubectl exec POD -- pulse diagnose.";
  EXPECT_EQ(host.Look().notes, std::vector<std::string>{said});
  EXPECT_EQ(host.addresses_asked.size(), 16U);
  EXPECT_EQ(host.most_bytes_asked, kMostBytesAtOnce / 32);
  for (int i = 0; i < 20; ++i) host.processes[i].network = 1 + i;
  host.options.ras.open_network = [](const HostProcess&, std::string* error) {
    *error = "it has ended";
    return nullptr;
  };
  const std::vector<std::string> notes = host.Look().notes;
  EXPECT_EQ(std::count(notes.begin(), notes.end(), said), 1);
}

TEST_F(OutsideLookTest, ManyRanks) {
  host.before = {World(4096, 500)};
  for (int i = 4; i < 4096; ++i) host.Rank(i).host = absl::StrCat("10.1.", i / 256, ".", i % 256);
  host.Rank(3000).all_reduces = 499;
  EXPECT_THAT(host.NamedRanks(), ElementsAre(3000));
}

// A stuck GPU, for which another rank waits in a barrier of its own.
TEST_F(OutsideLookTest, ARankMayWaitOutsideNcclForOneWhoseGpuComputes) {
  host.PutBehind(1);
  host.gpus[0].use = GpuUse::kMixed;
  EXPECT_EQ(host.Sentence(),
            "HANG  rank 1 (10.0.3.7, GPU 1, pid 1001) of a job without NCCL Pulse has launched "
            "13,990 AllReduce, the others 14,000, and nothing has moved for 10 s. Or it waits "
            "outside NCCL for rank 0 (10.0.3.7, GPU 0, pid 1000), whose GPU computes. Next: "
            "compare the stacks of its ranks (py-spy dump).");
  EXPECT_THAT(Named(host.looks.jobs[0]), IsEmpty());
  EXPECT_THAT(Perhaps(host.looks.jobs[0]), ElementsAre(0, 1));
}

// The ranks here run nothing, and may wait for the one whose GPU isn't seen.
TEST_F(OutsideLookTest, AllRanksMayWaitForTheOnlyOneAhead) {
  for (const bool is_here : {false, true}) {
    Host host;
    host.Rank(0).all_reduces = 14001;
    if (!is_here) {
      host.Rank(0).host = "10.0.3.8";
      host.processes.erase(host.processes.begin());
      host.gpus.erase(host.gpus.begin());
    }
    host.UseAllGpus(GpuUse::kIdle);
    if (is_here) host.gpus[0].use = GpuUse::kBusy;
    EXPECT_EQ(host.Sentence().substr(0, 6), "HANG  ");
    EXPECT_THAT(Named(host.looks.jobs[0]), IsEmpty());
    EXPECT_THAT(Perhaps(host.looks.jobs[0]), ElementsAre(0, 1, 2, 3));
  }
}

// A watchdog ended it.
TEST_F(OutsideLookTest, AnEndedRankMayHaveWaitedForOneWhoseGpuComputes) {
  host.End(2);
  host.gpus[0].use = GpuUse::kMixed;
  EXPECT_EQ(host.Sentence().substr(0, 12), "INCOMPLETE  ");
  EXPECT_THAT(host.looks.jobs[0].health.notes,
              ElementsAre("Rank 2 (10.0.3.7, GPU 2, pid 1002) has ended (its pid is gone, and "
                          "NCCL's RAS gets no answer)."));
}

// The kernel picks the process that answers: here seven times of eight one of the first job.
TEST_F(OutsideLookTest, AJobThatSeldomAnswersIsHeard) {
  for (const bool are_pids_known : {true, false}) {
    Host host(8);
    host.before = TwoJobs();
    for (auto& rank : host.After().ranks) ++rank.all_reduces;
    for (auto& rank : host.After(1).ranks) ++rank.all_reduces;
    if (!are_pids_known) {
      for (HostGpu& gpu : host.gpus) gpu.pids.clear();
    }
    bool had_waited = false;
    int number = 0;
    host.answer = [&](int) {
      if (std::exchange(had_waited, host.has_waited) != host.has_waited) number = 0;
      return RasReport{RasText({host.Now()[++number % 8 == 0 ? 1 : 0]}), "", true};
    };
    const Looks looks = host.Look();
    ASSERT_EQ(looks.jobs.size(), 2U);
    for (const JobLook& look : looks.jobs) EXPECT_EQ(JobSentence(look).substr(0, 4), "OK  ");
  }
}

TEST_F(OutsideLookTest, AJobInOneAnswerOnly) {
  host.After().hash = "0x1234";
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  Only one of two answers of NCCL's RAS has the communicators of a job "
            "without NCCL Pulse: it has just begun, or wasn't asked. Next: run it again.");
}

// Two engines of one job: one serves, the other waits.
TEST_F(OutsideLookTest, AWaitBesideACommunicatorThatMovesIsNotOk) {
  const auto add = [this](const char* hash, int first) {
    MadeUpCommunicator made = World(2, 500);
    made.hash = hash;
    for (int i = 0; i < 2; ++i) made.ranks[i].pid = 1000 + first + i, made.ranks[i].gpu = first + i;
    host.before.push_back(made);
  };
  add("0xa", 0);
  add("0xb", 2);
  for (int i = 0; i < 2; ++i) {
    host.After(1).ranks[i].all_reduces = 600;
    host.gpus[i].use = GpuUse::kMixed;
  }
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  A job without NCCL Pulse launches collectives: 1 of 3 communicators moved "
            "within 10 s. In the others 2 GPUs wait.");
  host.gpus.clear();
  host.has_waited = false;
  EXPECT_EQ(host.Sentence(),
            "INCOMPLETE  A job without NCCL Pulse launches collectives: 1 of 3 communicators moved "
            "within 10 s. Whether 2 further GPUs wait isn't known.");
}

// 13,990 and 14,000 AllReduces, one GPU at 0 % and one at 100 %: all that may answer of it, or not.
TEST_F(OutsideLookTest, TwoRanksOfWhichOneStops) {
  enum class Ras { kBoth, kFirst, kSecond, kOld, kNone };
  enum class Nvml { kUse, kWithoutPids, kShared, kNone };
  for (const bool is_listed : {true, false}) {
    for (const bool is_counted : {true, false}) {
      for (const Ras ras : {Ras::kBoth, Ras::kFirst, Ras::kSecond, Ras::kOld, Ras::kNone}) {
        for (const Nvml nvml : {Nvml::kUse, Nvml::kWithoutPids, Nvml::kShared, Nvml::kNone}) {
          SCOPED_TRACE(absl::StrCat(is_listed, is_counted, ", RAS ", static_cast<int>(ras),
                                    ", NVML ", static_cast<int>(nvml)));
          Host host(2);
          if (is_counted) host.Rank(1).all_reduces = 13990;
          host.gpus[1].use = GpuUse::kIdle;
          for (int i = 0; i < 2; ++i) host.processes[i].global_rank = absl::StrCat(i);
          if (nvml == Nvml::kWithoutPids) host.gpus[0].pids = host.gpus[1].pids = {};
          if (nvml == Nvml::kShared) host.gpus = {{0, GpuUse::kBusy, {1000, 1001}}};
          if (nvml == Nvml::kNone) host.gpus.clear();
          if (!is_listed) {
            host.processes.clear();
            host.options.ras.asks_processes = false;
            host.options.ras.address = Address{};
          }
          host.answer = [&](int) {
            if (ras == Ras::kOld) return RasReport{"", "NCCL is older than 2.28.7", true};
            const bool is_silent = ras == Ras::kNone || (ras == Ras::kFirst && host.has_waited) ||
                                   (ras == Ras::kSecond && !host.has_waited);
            return is_silent ? RasReport() : RasReport{RasText(host.before, false), "", true};
          };
          const bool is_seen = (is_counted && ras == Ras::kBoth) ||
                               (is_listed && (nvml == Nvml::kUse ||
                                              (nvml == Nvml::kWithoutPids && ras == Ras::kBoth)));
          const Looks looks = host.Look();
          ASSERT_LE(looks.jobs.size(), 1U);
          std::vector<int32_t> named;
          if (!looks.jobs.empty()) named = Named(looks.jobs[0]);
          EXPECT_EQ(named, is_seen ? std::vector<int32_t>{1} : std::vector<int32_t>());
          for (const JobLook& look : looks.jobs) {
            EXPECT_NE(FindingOfJob(look), JobFinding::kNone) << JobSentence(look);
          }
        }
      }
    }
  }
}

// Odd mixes of what RAS, NVML and /proc say. No other rank is named, and no wait is OK.
TEST_F(OutsideLookTest, OddCombinations) {
  using Make = std::function<void(Host*)>;
  const auto judge = [&](const char* name, const std::set<int32_t>& may_be_named, bool may_be_ok,
                         const Make& make) {
    for (const int nvml : {0, 1, 2}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", nvml));
      Host host;
      make(&host);
      if (nvml == 1) host.gpus.clear();
      if (nvml == 2) host.UseAllGpus(GpuUse::kUnknown);
      for (const JobLook& look : host.Look().jobs) {
        for (const int32_t rank : Named(look)) {
          EXPECT_EQ(may_be_named.count(rank), 1U) << JobText(look);
        }
        const bool is_ok = FindingOfJob(look) == JobFinding::kNone;
        EXPECT_TRUE(may_be_ok || !is_ok) << JobText(look);
        EXPECT_TRUE(!is_ok || Named(look).empty());
      }
    }
  };
  const auto wait = [&](const char* name, const std::set<int32_t>& may_be_named, const Make& make) {
    judge(name, may_be_named, false, make);
  };
  const auto remove = [](Host* host, int at) {
    host->processes.erase(host->processes.begin() + at);
  };
  const auto second = [](Host* host) -> MadeUpCommunicator& {
    host->before.push_back(World(4, 200));
    host->before.back().hash = "0x77";
    return host->before.back();
  };
  const auto lone = [](Host* host) {
    for (int i = 0; i < 4; ++i) {
      MadeUpCommunicator own = World(1, 0);
      own.hash = absl::StrCat("0x10", i);
      own.ranks[0].pid = 1000 + i;
      own.ranks[0].gpu = i;
      host->before.push_back(own);
    }
  };
  const auto leave = [](MadeUpRank* rank) { rank->is_missing = rank->has_left = true; };
  wait("restarted, other pids", {}, [&](Host* host) {
    host->After().hash = "0x99";
    for (auto& rank : host->After().ranks) rank.pid += 1000, rank.all_reduces = 5;
    for (auto& process : host->processes) process.pid = process.own_pid += 1000;
    for (HostGpu& gpu : host->gpus) gpu.pids[0] += 1000;
  });
  wait("restarted, one hash", {}, [&](Host* host) {
    for (auto& rank : host->After().ranks) rank.all_reduces = 5 + rank.rank;
  });
  wait("restarted, one hash, another secondary one", {}, [&](Host* host) {
    host->After().secondary = "0x3:0x4";
    host->After().ranks[1].all_reduces = 14001;
  });
  wait("an ended rank's pid is another user's process", {2}, [&](Host* host) {
    host->Rank(2).is_missing = host->Rank(2).is_dead = true;
    host->processes[2].user = 77;
  });
  wait("an ended rank's pid is a stopped process", {2}, [&](Host* host) {
    host->Rank(2).is_missing = true;
    host->processes[2].state = RunState::kStopped;
  });
  wait("two communicators with one hash", {}, [&](Host* host) {
    second(host).hash = World(4, 0).hash;
    host->before[1].secondary = "0x5:0x6";
  });
  wait("one hash, by turns", {}, [&](Host* host) {
    second(host).hash = World(4, 0).hash;
    host->before[1].secondary = "0x5:0x6";
    host->answer = [host](int number) {
      return RasReport{RasText({host->before[number % 2]}), "", true};
    };
  });
  wait("answers of another host's job", {}, [&](Host* host) {
    for (auto& rank : host->before[0].ranks) rank.host = "10.9.9.9";
  });
  wait("the first answer is another job's", {}, [&](Host* host) {
    host->After();
    host->before[0].hash = "0x55";
    for (auto& rank : host->before[0].ranks) rank.host = "10.9.9.9";
  });
  wait("the first answer is another job's, then one is behind", {1}, [&](Host* host) {
    host->After().ranks[1].all_reduces = 13990;
    host->before[0].hash = "0x55";
  });
  wait("a clock of another time", {1}, [&](Host* host) {
    host->PutBehind(1);
    host->answer = [host](int) {
      std::string text = RasText(host->before);
      text.replace(text.find("2026"), 4, host->has_waited ? "1970" : "2038");
      return RasReport{text, "", true};
    };
  });
  wait("all counts jump back", {}, [&](Host* host) {
    for (auto& rank : host->After().ranks) rank.all_reduces = 13000;
  });
  wait("one rank's counts jump back", {},
       [&](Host* host) { host->After().ranks[3].all_reduces = 13000; });
  wait("one rank's counts jump back, the others grow", {}, [&](Host* host) {
    for (auto& rank : host->After().ranks) rank.all_reduces = 15000;
    host->After().ranks[3].all_reduces = 13000;
  });
  judge("communicators of one rank, idle", {}, true, [&](Host* host) {
    lone(host);
    host->UseAllGpus(GpuUse::kIdle);
  });
  wait("communicators of one rank, busy", {}, [&](Host* host) { lone(host); });
  wait("communicators of one rank, one is behind", {1}, [&](Host* host) {
    lone(host);
    host->PutBehind(1);
  });
  judge("all have left a communicator, the job moves", {}, true, [&](Host* host) {
    for (auto& rank : second(host).ranks) leave(&rank);
    for (auto& rank : host->After().ranks) rank.all_reduces += 100;
  });
  wait("all have left a communicator, one is behind", {1}, [&](Host* host) {
    for (auto& rank : second(host).ranks) leave(&rank);
    host->PutBehind(1);
  });
  wait("all but one have left", {}, [&](Host* host) {
    for (int i = 1; i < 4; ++i) leave(&host->Rank(i));
  });
  wait("all but one have left, and run nothing", {}, [&](Host* host) {
    for (int i = 1; i < 4; ++i) leave(&host->Rank(i)), host->gpus[i].use = GpuUse::kIdle;
  });
  wait("a zombie", {2}, [&](Host* host) {
    host->Rank(2).is_missing = true;
    remove(host, 2);
    host->gpus[2].pids.clear();
  });
  wait("a zombie whose RAS still answers", {}, [&](Host* host) { remove(host, 2); });
  wait("D, and RAS answers", {},
       [&](Host* host) { host->processes[2].state = RunState::kUninterruptible; });
  wait("D, and RAS is silent", {2}, [&](Host* host) {
    host->processes[2].state = RunState::kUninterruptible;
    host->Rank(2).is_missing = true;
  });
  wait("D, and behind", {2}, [&](Host* host) {
    host->processes[2].state = RunState::kUninterruptible;
    host->PutBehind(2);
  });
  wait("two silent ranks elsewhere", {2, 3}, [&](Host* host) {
    for (int i = 2; i < 4; ++i) host->Rank(i).host = "10.0.3.8", host->Rank(i).is_missing = true;
    host->processes.resize(2);
    host->gpus.resize(2);
  });
  wait("silent in the first answer", {},
       [&](Host* host) { host->After(), host->Rank(2).is_missing = true; });
  wait("dead in the first answer", {}, [&](Host* host) {
    host->After();
    host->before[0].ranks[2].is_missing = host->before[0].ranks[2].is_dead = true;
  });
  wait("all are silent but one", {1, 2, 3}, [&](Host* host) {
    for (int i = 1; i < 4; ++i) host->Rank(i).is_missing = true;
  });
  wait("frozen in a wait for another one", {1}, [&](Host* host) {
    host->processes[3].state = RunState::kFrozen;
    host->PutBehind(1);
  });
  wait("frozen and behind", {1}, [&](Host* host) {
    host->processes[1].state = RunState::kFrozen;
    host->PutBehind(1);
  });
  wait("all are frozen, idle", {}, [&](Host* host) {
    for (auto& process : host->processes) process.state = RunState::kFrozen;
    host->UseAllGpus(GpuUse::kIdle);
  });
  wait("a launcher is stopped", {}, [&](Host* host) {
    HostProcess launcher = host->processes[0];
    launcher.pid = launcher.own_pid = 2000;
    launcher.state = RunState::kStopped;
    host->processes.push_back(launcher);
  });
  wait("creating, and one is missing", {}, [&](Host* host) {
    second(host).hash = "0x0";
    host->Rank(1).is_missing = true;
  });
  wait("one rank creates its communicator again", {}, [&](Host* host) {
    host->PutBehind(1);
    host->Rank(2).init_state = 7;
  });
  wait("a rank twice in one answer", {}, [&](Host* host) {
    host->before[0].ranks.push_back(host->Rank(1));
    host->before[0].ranks.back().all_reduces = 5;
  });
  wait("a rank beyond the size", {}, [&](Host* host) {
    host->before[0].ranks.push_back(host->Rank(1));
    host->before[0].ranks.back().rank = 99;
    host->before[0].ranks.back().all_reduces = 5;
  });
  wait("behind, with pid 0", {}, [&](Host* host) {
    host->PutBehind(1);
    host->Rank(1).pid = 0;
  });
  wait("two ranks in a process", {0, 1}, [&](Host* host) {
    host->PutBehind(1);
    host->Rank(1).pid = 1000;
    host->gpus[1].pids = {1000};
    remove(host, 1);
  });
  wait("one rank's count is out of all bounds", {},
       [&](Host* host) { host->Rank(0).all_reduces = INT64_MAX; });
  wait("only Broadcasts differ", {}, [&](Host* host) { host->Rank(0).broadcasts = 5; });
  wait("NVML's pids are of another namespace", {1}, [&](Host* host) {
    host->PutBehind(1);
    for (HostGpu& gpu : host->gpus) gpu.pids[0] += 900000;
  });
  wait("the uses of MIG aren't known", {}, [&](Host* host) { host->UseAllGpus(GpuUse::kUnknown); });
  wait("each rank's container has a GPU 0", {1}, [&](Host* host) {
    for (auto& rank : host->before[0].ranks) rank.gpu = 0;
    host->gpus[1].use = GpuUse::kIdle;
  });
  wait("a pid in two network namespaces", {1}, [&](Host* host) {
    host->PutBehind(1);
    HostProcess other = host->processes[1];
    other.pid = 3000;
    other.network = 5;
    host->processes.push_back(other);
  });
  wait("a pid twice in one network", {1}, [&](Host* host) {
    host->PutBehind(1);
    HostProcess other = host->processes[1];
    other.pid = 3000;
    host->processes.push_back(other);
  });
  judge("two jobs of which one moves", {1}, true, [&](Host* host) {
    host->PutBehind(1);
    for (auto& rank : second(host).ranks) rank.pid += 1000, rank.host = "10.9.9.9";
    for (auto& rank : host->After(1).ranks) rank.all_reduces += 100;
  });
  judge("it moves", {}, true, [&](Host* host) {
    for (auto& rank : host->After().ranks) rank.all_reduces += 300 - rank.rank;
  });
}

// Numbers, ranks and states of an honest report replaced: whatever it says, a verdict comes out, and
// names ranks of the report.
TEST_F(OutsideLookTest, HostileReports) {
  std::mt19937 random(20261128);  // NOLINT(cert-msc51-cpp): repeatable
  const auto any = [&random](std::size_t below) { return random() % below; };
  const std::vector<std::string> values = {
      "0",    "1",          "-1",       "7",    "9223372036854775807",
      "1e99", "2147483648", "\"0x51\"", "true", "18446744073709551615",
      "null", "{}",         "[]"};
  const auto spoil = [&](std::string text) {
    for (std::size_t i = 0; i <= any(6); ++i) {
      const std::size_t colon = text.find(": ", any(text.size()));
      const std::size_t end = text.find_first_of(",\n", colon);
      if (colon == text.npos || end == text.npos) continue;
      text.replace(colon + 2, end - colon - 2, values[any(values.size())]);
    }
    return text;
  };
  constexpr GpuUse kUses[] = {GpuUse::kUnknown, GpuUse::kIdle, GpuUse::kBusy, GpuUse::kMixed};
  std::size_t judged = 0;
  for (int round = 0; round < 1500; ++round) {
    Host host;
    MadeUpCommunicator second = World(3, 5);
    second.hash = "0x2";
    second.ranks[any(3)].is_missing = true;
    host.before.push_back(second);
    host.Rank(static_cast<int>(any(4))).all_reduces = 13990;
    for (HostGpu& gpu : host.gpus) gpu.use = kUses[any(4)];
    if (any(2) == 0) host.processes[any(4)].state = RunState::kStopped;
    const std::string first_text = spoil(RasText(host.before));
    const std::string text = any(2) == 0 ? first_text : spoil(RasText(host.before));
    host.answer = [&](int) { return RasReport{host.has_waited ? text : first_text, "", true}; };
    for (const JobLook& look : host.Look().jobs) {
      ++judged;
      EXPECT_FALSE(JobText(look).empty());
      for (const int32_t rank : Named(look)) ASSERT_GE(rank, 0) << text;
    }
  }
  EXPECT_GT(judged, 500U);
}

TEST(KnownFaults, AreOfTheirReleases) {
  for (const char* const unknown : {"", "x.y.z", "2.20.5"}) {
    EXPECT_TRUE(KnownFaults(unknown, true).empty());
  }
  EXPECT_GE(KnownFaults("2.28.9+cuda12.8", true).size(), 2U);
  // Between nodes only, and mended since.
  for (const auto& faults : {KnownFaults("2.28.9", false), KnownFaults("2.30.7", true)}) {
    for (const std::string& fault : faults) EXPECT_THAT(fault, Not(HasSubstr("CUDA graphs")));
  }
}

}  // namespace
}  // namespace nccl_pulse::outside
