#include "exporter/node/run_state.h"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace nccl_pulse {
namespace {

constexpr int64_t kSecond = 1000000000;

// A child that sleeps until it is killed.
class Child {
 public:
  Child() : pid_(fork()) {
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
  EXPECT_EQ(ReadRunState(child.pid()), RunState::kRunning);
  EXPECT_EQ(ReadRunState(getpid()), RunState::kRunning);
  child.Stop();
  EXPECT_EQ(ReadRunState(child.pid()), RunState::kStopped);
  EXPECT_EQ(ReadRunState(0), RunState::kUnknown);
  EXPECT_EQ(ReadRunState(-1), RunState::kUnknown);
}

TEST(RunState, HeldByADebugger) {
  const Child child;
  if (ptrace(PTRACE_ATTACH, child.pid(), nullptr, nullptr) != 0) {
    GTEST_SKIP() << "ptrace is not permitted here";
  }
  waitpid(child.pid(), nullptr, 0);
  EXPECT_EQ(ReadRunState(child.pid()), RunState::kTraced);
}

TEST(RunState, OneThatHasEnded) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ReadRunState(child), RunState::kEnding);
  ProcessSnapshot process;
  process.poller = PollerState::kRunning;
  process.last_poll_realtime_ns = kSecond;
  AddRunState(child, 9 * kSecond, 5 * kSecond, &process);
  EXPECT_EQ(process.end, ProcessEnd::kLost);
  EXPECT_EQ(process.end_realtime_ns, kSecond);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ReadRunState(child), RunState::kUnknown);
}

// A process whose background thread runs is not asked for, and one that ended has no state.
TEST(RunState, IsAskedWhereTheBackgroundThreadStands) {
  const Child child;
  child.Stop();
  ProcessSnapshot process;
  process.poller = PollerState::kRunning;
  process.last_poll_realtime_ns = kSecond;
  AddRunState(child.pid(), 6 * kSecond - 1, 5 * kSecond, &process);
  EXPECT_EQ(process.run_state, RunState::kUnknown);
  AddRunState(child.pid(), 6 * kSecond, 5 * kSecond, &process);
  EXPECT_EQ(process.run_state, RunState::kStopped);
  EXPECT_EQ(process.end, ProcessEnd::kLive);
  for (const PollerState poller : {PollerState::kNotStarted, PollerState::kEnded}) {
    ProcessSnapshot other = process;
    other.run_state = RunState::kUnknown;
    other.poller = poller;
    AddRunState(child.pid(), 60 * kSecond, 5 * kSecond, &other);
    EXPECT_EQ(other.run_state, RunState::kUnknown);
  }
}

}  // namespace
}  // namespace nccl_pulse
