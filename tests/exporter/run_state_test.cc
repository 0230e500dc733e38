#include "exporter/node/run_state.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kSecond = 1000000000;

// A child that does this, and then sleeps until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& body = [] {}) : pid_(fork()) {
    if (pid_ == 0) body();
    while (pid_ == 0) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // Returns once the kernel says that it has.
  void Stop() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }

 private:
  const pid_t pid_;
};

TEST(RunState, WhatTheKernelSays) {
  const Child child;
  EXPECT_EQ(RunStateOf({child.pid(), 0}), RunState::kRunning);
  EXPECT_EQ(RunStateOf({getpid(), 0}), RunState::kRunning);
  child.Stop();
  EXPECT_EQ(RunStateOf({child.pid(), 0}), RunState::kStopped);
  EXPECT_EQ(RunStateOf({}), RunState::kUnknown);
  EXPECT_EQ(RunStateOf({-1, 0}), RunState::kUnknown);
}

TEST(RunState, HeldByADebugger) {
  const Child child;
  if (ptrace(PTRACE_ATTACH, child.pid(), nullptr, nullptr) != 0) {
    GTEST_SKIP() << "ptrace is not permitted here";
  }
  waitpid(child.pid(), nullptr, 0);
  EXPECT_EQ(RunStateOf({child.pid(), 0}), RunState::kTraced);
}

// Made up: a test may not freeze a cgroup everywhere.
TEST(RunState, FrozenByItsCgroup) {
  const std::string root = ::testing::TempDir() + "/frozen";
  const std::string proc = root + "/proc";
  const std::string own = absl::StrCat(proc, "/", getpid());
  const std::string cgroup = root + "/sys/fs/cgroup/job";
  std::filesystem::create_directories(own);
  std::filesystem::create_directories(cgroup);
  std::ofstream(own + "/cgroup") << "0::/job\n";
  const auto state = [&](char letter, bool is_frozen) {
    std::ofstream(own + "/stat") << getpid() << " (python) " << letter
                                 << " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 64 0 12345 0 0";
    std::ofstream(cgroup + "/cgroup.events") << "populated 1\nfrozen " << is_frozen << "\n";
    return RunStateOf({getpid(), 12345}, proc);
  };
  EXPECT_EQ(state('S', false), RunState::kRunning);
  EXPECT_EQ(state('S', true), RunState::kFrozen);
  EXPECT_EQ(state('D', true), RunState::kFrozen);
  EXPECT_EQ(state('T', true), RunState::kStopped);
}

TEST(RunState, OneThatHasEnded) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(RunStateOf({child, 0}), RunState::kEnded);
  ProcessSnapshot process;
  process.poller = PollerState::kRunning;
  process.last_poll_realtime_ns = kSecond;
  AddRunState(child, 9 * kSecond, &process);
  EXPECT_EQ(process.end, ProcessEnd::kLost);
  EXPECT_EQ(process.end_realtime_ns, kSecond);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(RunStateOf({child, 0}), RunState::kEnded);
}

TEST(RunState, AnotherOneWithItsPidIsNotIt) {
  ProcessId process = ProcessIdOf(getpid());
  --process.start;
  EXPECT_EQ(RunStateOf(process), RunState::kEnded);
  EXPECT_TRUE(IsDead(process));
  EXPECT_FALSE(IsDead(ProcessIdOf(getpid())));
  EXPECT_EQ(RunStateOf({getpid(), 0}), RunState::kRunning) << "whoever it is";
}

TEST(RunState, LivesOnWithoutItsFirstThread) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const Child child([&ready] {
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void* out) -> void* {
          char state = '?';
          while (state != 'Z') {  // the first thread's
            std::ifstream stat("/proc/self/stat");
            std::string line;
            std::getline(stat, line);
            state = line[line.rfind(") ") + 2];
          }
          if (write(*static_cast<int*>(out), "", 1) != 1) _exit(1);
          while (true) pause();
        },
        &ready[1]);
    syscall(SYS_exit, 0);  // pthread_exit would unwind the test
  });
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(RunStateOf(ProcessIdOf(child.pid())), RunState::kRunning);
}

// What the kernel writes while it dumps a core is laid over what it writes of a process that runs.
TEST(RunState, DumpsCore) {
  const Child subject;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(2);
    const std::string real = "/proc/" + std::to_string(subject.pid()) + "/status";
    const std::string text = testing::TempDir() + "/status" + std::to_string(getpid());
    std::ofstream(text) << std::ifstream(real).rdbuf()
                        << "Name:\tx\nCoreDumping:\t1\nThreads:\t9\n";
    if (mount(text.c_str(), real.c_str(), nullptr, MS_BIND, nullptr) != 0) _exit(2);
    const RunState state = RunStateOf(ProcessIdOf(subject.pid()));
    _exit(state == RunState::kDumpingCore && IsDead(state) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(status, 0);
}

// A process whose background thread runs is not asked for, and one that ended has no state.
TEST(RunState, IsAskedWhereTheBackgroundThreadStands) {
  const Child child;
  child.Stop();
  ProcessSnapshot process;
  process.poller = PollerState::kRunning;
  process.last_poll_realtime_ns = kSecond;
  AddRunState(child.pid(), 2 * kSecond - 1, &process);
  EXPECT_EQ(process.run_state, RunState::kUnknown);
  AddRunState(child.pid(), 2 * kSecond, &process);
  EXPECT_EQ(process.run_state, RunState::kStopped);
  EXPECT_EQ(process.end, ProcessEnd::kLive);
  for (const PollerState poller : {PollerState::kNotStarted, PollerState::kEnded}) {
    ProcessSnapshot other = process;
    other.run_state = RunState::kUnknown;
    other.poller = poller;
    AddRunState(child.pid(), 60 * kSecond, &other);
    EXPECT_EQ(other.run_state, RunState::kUnknown);
  }
}

}  // namespace
}  // namespace nccl_pulse
