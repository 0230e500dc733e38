// Programs that are run for what they print: whatever they are, there is an answer in time.
#include "exporter/fleet/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::HasSubstr;

TEST(RunProgram, Prints) {
  const ProgramOutput output = RunProgram({"sh", "-c", "echo out; echo err >&2"}, minutes(1));
  EXPECT_EQ(output.error, "");
  EXPECT_EQ(output.text, "out\nerr\n");
  EXPECT_THAT(RunProgram({"sh", "-c", "exit 3"}, minutes(1)).error, HasSubstr("status 3"));
  EXPECT_THAT(RunProgram({"/no/such/program"}, minutes(1)).error, HasSubstr("/no/such/program: "));
}

TEST(RunProgram, ReadsItsInput) {
  // More than a pipe holds, and to a program that reads only its beginning.
  const std::string input = "first\n" + std::string(1 << 20, 'x');
  EXPECT_EQ(RunProgram({"wc", "-c"}, minutes(1), input).text, "1048582\n");
  EXPECT_EQ(RunProgram({"head", "-1"}, minutes(1), input).text, "first\n");
  EXPECT_EQ(RunProgram({"cat"}, minutes(1)).text, "");
}

TEST(RunProgram, HasSignalsOfItsOwn) {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &term, &before);
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -PIPE $$; echo survived"}, minutes(1)).error,
            "it was ended by signal 13");
  EXPECT_EQ(RunProgram({"sh", "-c", "kill -TERM $$; echo survived"}, minutes(1)).error,
            "it was ended by signal 15");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
}

// Such as a capture that goes on in the background.
TEST(RunProgram, AChildThatKeepsItsOutputIsNotWaitedFor) {
  const ProgramOutput output =
      RunProgram({"sh", "-c", "sleep 1000 & echo $!; echo done; exit 3"}, minutes(10));
  EXPECT_EQ(output.error, "it ended with status 3");
  const int child = std::stoi(output.text);
  EXPECT_EQ(output.text, std::to_string(child) + "\ndone\n");
  EXPECT_EQ(kill(child, SIGKILL), 0) << "it was ended with the program";
}

TEST(RunProgram, AllThatAProgramPrintsIsReadBeforeItsEnd) {
  const ProgramOutput output =
      RunProgram({"sh", "-c", "exec head -c 1000000 /dev/zero"}, minutes(10));
  EXPECT_EQ(output.error, "");
  EXPECT_EQ(output.text.size(), 1000000u);
}

TEST(RunProgram, AStatusThatTheKernelDoesNotKeepIsNoSuccess) {
  std::signal(SIGCHLD, SIG_IGN);
  EXPECT_THAT(RunProgram({"sh", "-c", "exit 3"}, minutes(10)).error,
              HasSubstr("exit status is not known"));
  // The program itself has no part in that.
  const ProgramOutput output =
      RunProgram({"sh", "-c", "grep SigIgn /proc/self/status"}, minutes(10));
  std::signal(SIGCHLD, SIG_DFL);
  const uint64_t ignored = std::stoull(
      output.text.substr(output.text.find_first_of("0123456789abcdef", 7)), nullptr, 16);
  EXPECT_EQ(ignored >> (SIGCHLD - 1) & 1, 0u) << output.text;
}

// As in a container, of which `pulse agent` is process 1.
TEST(RunProgram, ReapsWhatProgramsLeaveBehindAndNothingElse) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const ProgramOutput output = RunProgram(
      {"sh", "-c",
       "sleep 0 & echo $!; setsid sh -c 'echo $$; exec sleep 0' & wait; sleep 1000 & echo $!"},
      minutes(10));
  EXPECT_EQ(output.error, "");
  std::istringstream said(output.text);
  pid_t child = 0;
  std::vector<pid_t> left;
  while (said >> child) left.push_back(child);
  ASSERT_EQ(left.size(), 3u) << output.text;
  EXPECT_EQ(kill(left.back(), SIGKILL), 0);
  for (const pid_t each : left) {
    while (kill(each, 0) == 0) {
      ReapOrphans();
      usleep(1000);
    }
  }
  // RunProgram's own children are left to it.
  std::atomic<bool> is_done{false};
  std::thread reaper([&is_done] {
    while (!is_done) ReapOrphans();
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(RunProgram({"sh", "-c", "exit 3"}, minutes(10)).error, "it ended with status 3");
  }
  is_done = true;
  reaper.join();
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

std::atomic<bool> may_start{false};
std::atomic<pid_t> started{0};

// As if the program's file system did not answer for a while.
int SpawnLate(const std::vector<std::string>& /*arguments*/, int /*input*/, int /*output*/,
              pid_t* child) {
  while (!may_start) usleep(1000);
  char name[] = "sleep";
  char length[] = "1000";
  char* argv[] = {name, length, nullptr};
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int result = posix_spawnp(child, name, nullptr, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  started = *child;
  return result;
}

TEST(RunProgram, AStartThatHangsIsNotWaitedFor) {
  const ProgramOutput output = RunProgram({"tool"}, milliseconds(50), "", SpawnLate);
  EXPECT_THAT(output.error, HasSubstr("tool: it could not be started within 50 ms"));
  may_start = true;
  while (started == 0) usleep(1000);
  // What starts after all is ended, and no zombie of it stays.
  while (kill(started, 0) == 0) usleep(1000);
  EXPECT_EQ(errno, ESRCH);
}

}  // namespace
}  // namespace nccl_pulse
