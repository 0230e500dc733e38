#include "exporter/node/process_state.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <string>

namespace nccl_pulse {
namespace {

// A child that does this and never returns from it.
pid_t Fork(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  body();
  while (true) pause();
}

void End(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(ProcessState, RunsStopsAndEnds) {
  EXPECT_EQ(StateOf(ProcessIdOf(getpid())), ProcessState::kRuns);
  EXPECT_EQ(StateOf({}), ProcessState::kUnknown);
  const pid_t child = Fork([] {});
  const ProcessId process = ProcessIdOf(child);
  EXPECT_NE(process.start, 0u);
  EXPECT_EQ(StateOf(process), ProcessState::kRuns);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(StateOf(process), ProcessState::kStopped);
  kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(StateOf(process), ProcessState::kGone) << "a zombie";
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(StateOf(process), ProcessState::kGone);
}

TEST(ProcessState, AnotherOneWithItsPidIsNotIt) {
  ProcessId process = ProcessIdOf(getpid());
  --process.start;
  EXPECT_EQ(StateOf(process), ProcessState::kGone);
  EXPECT_EQ(StateOf({getpid(), 0}), ProcessState::kRuns) << "whoever it is";
}

TEST(ProcessState, LivesOnWithoutItsFirstThread) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = Fork([&ready] {
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
  EXPECT_EQ(StateOf(ProcessIdOf(child)), ProcessState::kRuns);
  End(child);
}

// What the kernel writes while it dumps a core is laid over what it writes of a process that runs.
TEST(ProcessState, DumpsCore) {
  const pid_t subject = Fork([] {});
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(2);
    const std::string real = "/proc/" + std::to_string(subject) + "/status";
    const std::string text = testing::TempDir() + "/status" + std::to_string(getpid());
    std::ofstream(text) << std::ifstream(real).rdbuf()
                        << "Name:\tx\nCoreDumping:\t1\nThreads:\t9\n";
    if (mount(text.c_str(), real.c_str(), nullptr, MS_BIND, nullptr) != 0) _exit(2);
    const ProcessState state = StateOf(ProcessIdOf(subject));
    _exit(state == ProcessState::kDumpsCore && IsDead(state) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  End(subject);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace nccl_pulse
