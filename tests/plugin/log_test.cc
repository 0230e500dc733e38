// Messages on standard error: nobody waits for whoever reads them.
#include "plugin/runtime/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <climits>
#include <cstddef>
#include <cstdio>
#include <string>

namespace nccl_pulse {
namespace {

// A pipe in the place of standard error.
class LogTest : public ::testing::Test {
 protected:
  LogTest() : saved_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    EXPECT_EQ(dup2(pipe_[1], STDERR_FILENO), STDERR_FILENO);
    close(pipe_[1]);
    alarm(60);  // a write that waits would wait for ever
  }
  ~LogTest() override {
    alarm(0);
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    if (pipe_[0] >= 0) close(pipe_[0]);
  }
  static void Fill() {
    SetBlocking(STDERR_FILENO, false);
    const std::string junk(PIPE_BUF, 'x');
    while (write(STDERR_FILENO, junk.data(), junk.size()) > 0) {
    }
    SetBlocking(STDERR_FILENO, true);
  }
  std::string Drain() const {
    SetBlocking(pipe_[0], false);
    std::string text;
    char buffer[65536];
    for (ssize_t n = 0; (n = read(pipe_[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    return text;
  }
  static void SetBlocking(int fd, bool is_blocking) {
    const int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, is_blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
  }

  const int saved_;
  int pipe_[2] = {-1, -1};
  Log log_;
};

TEST_F(LogTest, WithoutStandardErrorNothingIsWrittenWhereTheJobOpensAFile) {
  close(STDERR_FILENO);
  const Log log;
  FILE* file = tmpfile();
  ASSERT_EQ(fileno(file), STDERR_FILENO);
  log.Warn(nullptr, "one");
  EXPECT_EQ(lseek(STDERR_FILENO, 0, SEEK_END), 0);
}

TEST_F(LogTest, WhatAFullPipeDoesNotTakeIsCounted) {
  Fill();
  log_.Warn(nullptr, "one");
  log_.Warn(nullptr, "two");
  EXPECT_EQ(Drain().find("NCCL Pulse"), std::string::npos);
  log_.Warn(nullptr, "three");
  EXPECT_EQ(Drain(), "NCCL Pulse warning: (standard error was full, lines lost: 2) three\n");
  log_.Warn(nullptr, "four");
  EXPECT_EQ(Drain(), "NCCL Pulse warning: four\n");
}

TEST_F(LogTest, ALineIsCutToWhatAPipeTakesAtOnce) {
  log_.Warn(nullptr, std::string(std::size_t{3} * PIPE_BUF, 'y'));
  const std::string line = Drain();
  EXPECT_EQ(line.size(), std::size_t{PIPE_BUF});
  EXPECT_EQ(line.back(), '\n');
}

// A terminal that is held (Ctrl+S) takes the beginning of a line, and would wait with the rest.
TEST(LogOnATerminalTest, AFullOneIsNotWaitedFor) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
    GTEST_SKIP() << "no terminals here";
  }
  const int reader = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  const int saved = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(reader, STDERR_FILENO), STDERR_FILENO);
  alarm(60);
  const Log log;
  for (int i = 0; i < 100; ++i) log.Warn(nullptr, std::string(PIPE_BUF, 'z'));
  alarm(0);
  dup2(saved, STDERR_FILENO);
  for (const int each : {saved, reader, terminal}) close(each);
}

TEST(LogOnASocketTest, AFullOneIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const int saved = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  alarm(60);
  const Log log;
  for (int i = 0; i < 1000; ++i) log.Warn(nullptr, std::string(PIPE_BUF, 'z'));
  alarm(0);
  dup2(saved, STDERR_FILENO);
  for (const int each : {saved, ends[0], ends[1]}) close(each);
}

// It would raise SIGPIPE, which ends a process.
TEST_F(LogTest, AClosedPipeDoesNoHarm) {
  close(pipe_[0]);
  pipe_[0] = -1;
  log_.Warn(nullptr, "nobody reads this");
}

}  // namespace
}  // namespace nccl_pulse
