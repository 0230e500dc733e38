// Programs that are run for what they print: whatever they are, there is an answer in time.
#include "exporter/fleet/run_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
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
