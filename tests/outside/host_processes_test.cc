// Processes with NCCL in a /proc that the test makes up.
#include "exporter/outside/host_processes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nccl_pulse::outside {
namespace {

constexpr char kNccl[] =
    "7f0000000000-7f0000001000 r-xp 00000000 08:01 42  /opt/nccl/lib/libnccl.so.2.28.9\n";
constexpr char kPlugin[] =
    "7f0000002000-7f0000003000 r-xp 00000000 08:01 43  /opt/pulse/libnccl-profiler-pulse.so\n";

constexpr char kEnvironment[] =
    "RANK=3\0WORLD_SIZE=4\0SECRET=1\0SLURM_JOB_ID=77\0NCCL_RAS_ADDR=a:1\0";

class HostProcessesTest : public ::testing::Test {
 protected:
  HostProcessesTest() {
    std::string made = ::testing::TempDir() + "/procXXXXXX";
    root_ = mkdtemp(made.data());
  }

  void Add(int pid, const std::string& maps, char state = 'S', const std::string& environ = "",
           int own_pid = 0) const {
    const std::string folder = absl::StrCat(root_, "/", pid);
    mkdir(folder.c_str(), 0755);
    std::ofstream(folder + "/maps") << maps;
    std::ofstream(folder + "/stat") << pid << " (python) r) " << state << " 1 1 1 0 -1 0 0 0 0 0 "
                                    << "0 0 0 0 20 0 " << (state == 'Z' ? 1 : 64) << " 0 12345 0 0";
    std::ofstream(folder + "/status") << "Name:\tpython\nNSpid:\t" << pid
                                      << (own_pid == 0 ? "" : absl::StrCat("\t", own_pid)) << "\n";
    std::ofstream(folder + "/environ") << environ;
  }
  HostProcesses Find() const { return FindNcclProcesses(std::chrono::seconds(60), nullptr, root_); }

  std::string root_;
};

TEST_F(HostProcessesTest, OnesWithNccl) {
  const std::string long_maps(100000, 'x');
  Add(30, long_maps + "\n" + kNccl + long_maps, 'T',
      std::string(kEnvironment, sizeof(kEnvironment) - 1));
  Add(31, std::string(kNccl) + kPlugin, 'R', "", 7);
  Add(32, "7f00-7f01 r-xp 0 0 0  /usr/lib/libc.so.6\n");
  Add(33, kNccl, 'Z');
  mkdir((root_ + "/self").c_str(), 0755);
  const HostProcesses found = Find();
  EXPECT_EQ(found.unread, 0U);
  ASSERT_EQ(found.processes.size(), 2U);
  const HostProcess& stopped = found.processes[0];
  EXPECT_EQ(stopped.pid, 30);
  EXPECT_EQ(stopped.own_pid, 30);
  EXPECT_EQ(stopped.state, RunState::kStopped);
  EXPECT_EQ(stopped.global_rank, "3");
  EXPECT_EQ(stopped.world_size, "4");
  EXPECT_EQ(stopped.slurm_job_id, "77");
  EXPECT_EQ(stopped.ras_address, "a:1");
  EXPECT_FALSE(stopped.has_plugin);
  EXPECT_EQ(stopped.nccl_version, "2.28.9");
  const HostProcess& measured = found.processes[1];
  EXPECT_TRUE(measured.has_plugin);
  EXPECT_EQ(measured.own_pid, 7);
  EXPECT_EQ(measured.state, RunState::kRunning);
}

// A library's name across the border of two reads is found.
TEST_F(HostProcessesTest, NamesAcrossReads) {
  for (std::size_t i = 0; i < 12; ++i) {
    Add(static_cast<int>(100 + i), std::string(16384 - i, 'x') + "/libnccl.so.2\n");
  }
  EXPECT_EQ(Find().processes.size(), 12U);
}

TEST_F(HostProcessesTest, VersionsAcrossReads) {
  for (std::size_t i = 0; i < 20; ++i) {
    Add(static_cast<int>(100 + i), std::string(16384 - i, 'x') + "/libnccl.so.2.30.17\n");
  }
  for (const HostProcess& each : Find().processes) EXPECT_EQ(each.nccl_version, "2.30.17");
  Add(99, "/opt/libnccl.so.2\n");
  EXPECT_EQ(Find().processes[0].nccl_version, "");
}

TEST_F(HostProcessesTest, ValuesCantSteerATerminalAndAreShort) {
  Add(40, kNccl, 'S', "RANK=\x1b[2J" + std::string(100000, '9') + std::string("\0X=1", 4));
  const HostProcesses found = Find();
  ASSERT_EQ(found.processes.size(), 1U);
  EXPECT_EQ(found.processes[0].global_rank.find('\x1b'), std::string::npos);
  EXPECT_LE(found.processes[0].global_rank.size(), 512U);
}

TEST_F(HostProcessesTest, NetworkNamespaces) {
  const auto add_network = [this](const std::string& pid, const std::string& of) {
    mkdir((root_ + "/" + pid).c_str(), 0755);
    mkdir((root_ + "/" + pid + "/ns").c_str(), 0755);
    ASSERT_EQ(symlink((root_ + "/" + of).c_str(), (root_ + "/" + pid + "/ns/net").c_str()), 0);
  };
  std::ofstream(root_ + "/own") << "";
  std::ofstream(root_ + "/other") << "";
  for (const int pid : {70, 71, 72}) Add(pid, kNccl);
  add_network("self", "own");
  add_network("70", "own");
  add_network("71", "other");
  const HostProcesses found = Find();
  ASSERT_EQ(found.processes.size(), 3U);
  EXPECT_EQ(found.processes[0].network, 0U);
  EXPECT_NE(found.processes[1].network, 0U);
  EXPECT_EQ(found.processes[2].network, 0U);  // another user's
}

TEST_F(HostProcessesTest, RunStates) {
  constexpr std::pair<char, RunState> kStates[] = {
      {'R', RunState::kRunning}, {'S', RunState::kRunning}, {'D', RunState::kUninterruptible},
      {'T', RunState::kStopped}, {'t', RunState::kTraced},  {'I', RunState::kRunning},
  };
  int pid = 80;
  for (const auto& each : kStates) Add(pid++, kNccl, each.first);
  Add(pid, kNccl, 'X');
  const HostProcesses found = Find();
  ASSERT_EQ(found.processes.size(), std::size(kStates));
  for (std::size_t i = 0; i < std::size(kStates); ++i) {
    EXPECT_EQ(found.processes[i].state, kStates[i].second) << kStates[i].first;
  }
}

TEST_F(HostProcessesTest, ACrashedProcessDumpsCore) {
  Add(80, kNccl, 'D', "", 7);
  std::ofstream(root_ + "/80/status", std::ios::app) << "CoreDumping:\t1\nThreads:\t9\n";
  ASSERT_EQ(Find().processes.size(), 1U);
  EXPECT_EQ(Find().processes[0].state, RunState::kDumpingCore);
  EXPECT_EQ(Find().processes[0].own_pid, 7);
}

TEST_F(HostProcessesTest, WhyAProcessDoesNotRun) {
  Add(80, kNccl, 'T');
  Add(81, kNccl, 't');
  Add(82, kNccl);
  Add(83, kNccl);
  for (const char* name : {"82", "83"}) {
    const std::string cgroup = absl::StrCat(root_, "/../sys/fs/cgroup/", name);
    std::filesystem::create_directories(cgroup);
    std::ofstream(cgroup + "/cgroup.events") << "populated 1\nfrozen " << (name[1] == '2') << "\n";
    std::ofstream(absl::StrCat(root_, "/", name, "/cgroup")) << "0::/" << name << "\n";
  }
  std::vector<std::string> why;
  for (const HostProcess& each : Find().processes) why.push_back(WhyNotRunning(each.state));
  EXPECT_EQ(why, (std::vector<std::string>{"stopped by a signal", "held by a debugger",
                                           "frozen by its cgroup", ""}));
}

// The last thread of a killed process releases its GPU. The first one may end long before the others.
TEST_F(HostProcessesTest, AProcessIsEndingOnceAllThreadsAre) {
  const auto add_thread = [this](int thread, unsigned flags) {
    const std::string folder = absl::StrCat(root_, "/90/task/", thread);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/stat") << thread << " (python) D 1 1 1 0 -1 " << flags << " 0";
  };
  EXPECT_FALSE(IsEnding(90, root_));  // in another PID namespace
  add_thread(90, 0x40844c);
  EXPECT_TRUE(IsEnding(90, root_));
  add_thread(91, 0x408440);
  EXPECT_FALSE(IsEnding(90, root_));
}

// A launched rank that is not as far.
TEST_F(HostProcessesTest, RanksWithoutNccl) {
  Add(60, "7f00-7f01 r-xp 0 0 0  /usr/bin/python3\n", 'S', std::string("RANK=1\0WORLD_SIZE=4", 19));
  Add(61, "7f00-7f01 r-xp 0 0 0  /usr/bin/python3\n", 'S', "RANK=1");
  const HostProcesses found = Find();
  EXPECT_TRUE(found.processes.empty());
  ASSERT_EQ(found.unloaded.size(), 1U);
  EXPECT_EQ(found.unloaded[0].pid, 60);
}

// Launchers with a process for each task.
TEST_F(HostProcessesTest, RanksOfTasks) {
  const std::string slurm = "SLURM_PROCID=3\nSLURM_STEP_NUM_TASKS=8\n";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {slurm, "3 of 8, a task's"},
      {slurm + "PMI_RANK=2\nPMI_SIZE=4\n", "2 of 4, a task's"},
      {slurm + "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\n", "1 of 2, a task's"},
      {slurm + "RANK=9\nWORLD_SIZE=16\n", "9 of 16"},  // torchrun under srun
      {"SLURM_PROCID=0\nSLURM_NTASKS=8\n", " of "},    // a batch script
  };
  int pid = 60;
  for (auto [environment, said] : rows) {
    std::replace(environment.begin(), environment.end(), '\n', '\0');
    Add(++pid, kNccl, 'S', environment);
    const HostProcess found = Find().processes.back();
    EXPECT_EQ(absl::StrCat(found.global_rank, " of ", found.world_size,
                           found.is_task_rank ? ", a task's" : ""),
              said);
  }
}

// Links in place of files are not followed: only /proc itself makes them.
TEST_F(HostProcessesTest, NoLinkIsFollowed) {
  const std::string elsewhere = root_ + "/elsewhere";
  std::ofstream(elsewhere) << kNccl;
  mkdir((root_ + "/50").c_str(), 0755);
  ASSERT_EQ(symlink(elsewhere.c_str(), (root_ + "/50/maps").c_str()), 0);
  Add(51, kNccl);
  ASSERT_EQ(symlink((root_ + "/51").c_str(), (root_ + "/52").c_str()), 0);
  const HostProcesses found = Find();
  ASSERT_EQ(found.processes.size(), 1U);
  EXPECT_EQ(found.processes[0].pid, 51);
}

TEST_F(HostProcessesTest, NoSuchFolder) {
  const HostProcesses found = FindNcclProcesses(std::chrono::seconds(60), nullptr, root_ + "/none");
  EXPECT_TRUE(found.processes.empty());
}

}  // namespace
}  // namespace nccl_pulse::outside
