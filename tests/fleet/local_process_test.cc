// What is read of a process on this host that a snapshot names: never more than it may be.
#include "exporter/fleet/local_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A program with this log, for as long as the object lives.
class Program {
 public:
  explicit Program(const std::string& log) {
    const std::string variable = absl::StrCat("NCCL_DEBUG_FILE=", log);
    const char* const environment[] = {variable.c_str(), nullptr};
    int begun[2];
    EXPECT_EQ(pipe2(begun, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      execle("/bin/sleep", "sleep", "1000", nullptr, environment);
      _exit(1);
    }
    close(begun[1]);
    char byte;
    EXPECT_EQ(read(begun[0], &byte, 1), 0) << "closed by execle";
    close(begun[0]);
  }
  ~Program() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  LocalProcess Read() const {
    ProcessSnapshot process;
    process.pid = pid_;
    process.hostname = HostName();
    process.start_realtime_ns = std::numeric_limits<int64_t>::max() / 2;
    return ReadLocalProcess(process, IsSetting, std::chrono::seconds(60));
  }

 private:
  pid_t pid_;
};

class LocalProcessTest : public ::testing::Test {
 protected:
  LocalProcessTest() {
    std::string name = ::testing::TempDir() + "/localXXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/log";
  }
  ~LocalProcessTest() override { fs::remove_all(folder_); }

  std::string folder_, path_;
};

TEST_F(LocalProcessTest, TheLogIsRead) {
  std::ofstream(path_) << "NCCL INFO Bootstrap";
  const LocalProcess read = Program(path_).Read();
  EXPECT_EQ(read.settings, absl::StrCat("NCCL_DEBUG_FILE=", path_, "\n"));
  EXPECT_EQ(read.log, "NCCL INFO Bootstrap");
  EXPECT_EQ(read.log_error, "");
}

// Opening a FIFO lets go whoever waits at its other end; opening a device may do anything.
TEST_F(LocalProcessTest, WhatIsNoPlainFileIsNotEvenOpened) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(inotify_add_watch(watch, path_.c_str(), IN_OPEN), 0);
  const LocalProcess read = Program(path_).Read();
  EXPECT_THAT(read.log_error, HasSubstr("is no plain file"));
  alignas(inotify_event) char events[4096];
  EXPECT_EQ(::read(watch, events, sizeof(events)), -1) << "it was opened";
  EXPECT_EQ(errno, EAGAIN);
  close(watch);
}

TEST_F(LocalProcessTest, ALinkIsNotFollowed) {
  std::ofstream(folder_ + "/other") << "secret";
  fs::create_symlink(folder_ + "/other", path_);
  const LocalProcess read = Program(path_).Read();
  EXPECT_EQ(read.log, "");
  EXPECT_THAT(read.log_error, HasSubstr("is no plain file"));
}

}  // namespace
}  // namespace nccl_pulse
