// What is read of a process on this host that a snapshot names: never more than it may be.
#include "exporter/capture/local_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "exporter/base/descriptor.h"
#include "exporter/node/handover.h"
#include "exporter/node/service_file.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// A program with this log, for as long as the object lives.
class Program {
 public:
  explicit Program(const std::string& log) {
    const std::string variable = absl::StrCat("NCCL_DEBUG_FILE=", log);
    const char* const environment[] = {variable.c_str(),
                                       "TORCHCOMM_ABORT_ON_ERROR=0",
                                       "TORCH_DIST_INIT_BARRIER=1",
                                       "TORCH_HOME=/home",
                                       "NCCL_MY_TOKEN=s3cr3t",
                                       "TORCH_NCCL_password=s3cr3t",
                                       "NCCL_ODD=a\nRANK=\x1b[2J",
                                       nullptr};
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

  ProcessSnapshot Snapshot() const {
    ProcessSnapshot process;
    process.pid = pid_;
    process.hostname = HostName();
    process.pid_namespace = OwnPidNamespace();
    process.start_realtime_ns = std::numeric_limits<int64_t>::max() / 2;
    return process;
  }
  LocalProcess Read() const {
    return ReadLocalProcess(Snapshot(), IsSetting, std::chrono::seconds(60));
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
  EXPECT_EQ(read.settings, absl::StrCat("NCCL_DEBUG_FILE=", path_,
                                        "\nTORCHCOMM_ABORT_ON_ERROR=0\nTORCH_DIST_INIT_BARRIER=1\n"
                                        "NCCL_MY_TOKEN=(withheld)\nTORCH_NCCL_password=(withheld)\n"
                                        "NCCL_ODD=a?RANK=?[2J\n"));
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
  EXPECT_THAT(read.log_error, HasSubstr("is not a regular file"));
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
  EXPECT_THAT(read.log_error, HasSubstr("is not a regular file"));
}

// As in a pod: its processes have the node's name, and its own name is in the name of the log.
// A process in /proc, with a thread in a driver call, whose cgroup is frozen.
class LocalStateTest : public LocalProcessTest {
 protected:
  LocalStateTest() {
    Write("proc/status", "State:\tS (sleeping)\n");
    Write("proc/cgroup", "6:freezer:/job\n0::/job\n");
    Write("root/job/cgroup.events", "populated 1\nfrozen 1\n");
    Write("proc/task/7/stat", "7 (a) S) S 1");
    Write("proc/task/7/wchan", "do_freezer_trap");
    Write("proc/task/7/comm", "python\n");
    Write("proc/task/7/stack", "[<0>] do_freezer_trap+0x1\n");
    Write("proc/task/8/stat", "8 (b) D 1");
    Write("proc/task/8/wchan", "rm_lock");
    Write("proc/task/8/comm", "nv\x1b[2J\n");
  }
  void Write(const std::string& name, const std::string& text) const {
    const fs::path path = fs::path(folder_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string Text() const {
    const Descriptor folder(open((folder_ + "/proc").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return LocalStateText(folder.get(), folder_ + "/root");
  }
};

TEST_F(LocalStateTest, AFrozenProcess) {
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("State: S (sleeping)\n"));
  EXPECT_THAT(text, HasSubstr("\ncgroup:\n6:freezer:/job\n0::/job\npopulated 1\nfrozen 1\n"));
  EXPECT_THAT(text, HasSubstr("\n7 S do_freezer_trap python\n[<0>] do_freezer_trap+0x1\n"));
}

TEST_F(LocalStateTest, AThreadInADriverCallWhoseStackMayNotBeRead) {
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("\n8 D rm_lock nv"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(LocalStateTest, ACgroupAboveTheRootIsNotRead) {
  Write("cgroup.events", "secret");
  Write("proc/cgroup", "0::/..\n");
  EXPECT_THAT(Text(), Not(HasSubstr("secret")));
}

TEST_F(LocalStateTest, ThreadsAndStacksAreBounded) {
  Write("proc/task/7/stack", std::string(1 << 20, 'x'));
  for (int i = 1000; i < 1300; ++i) Write(absl::StrCat("proc/task/", i, "/comm"), "a\n");
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("\nand 46 more\n"));
  EXPECT_LT(text.size(), 65536U);
}

TEST_F(LocalProcessTest, AProcessMayBeHereByTheNameOfTheNode) {
  const std::string own = HostName();
  std::ofstream(absl::StrCat(path_, ".", own.substr(0, own.find('.')))) << "NCCL INFO Bootstrap";
  const Program program(path_ + ".%h");
  ProcessSnapshot process = program.Snapshot();
  EXPECT_EQ(WhyNotHere(process), "");
  process.hostname = "the-node";
  EXPECT_EQ(WhyNotHere(process), "it is on the-node; also run this there");
  setenv("NCCL_PULSE_NODE_NAME", "the-node", 1);
  EXPECT_EQ(NodeName(), "the-node");
  EXPECT_EQ(WhyNotHere(process), "");
  unsetenv("NCCL_PULSE_NODE_NAME");
  EXPECT_EQ(NodeName(), HostName());
  EXPECT_EQ(ReadLocalProcess(process, IsSetting, std::chrono::seconds(60)).log,
            "NCCL INFO Bootstrap");
}

TEST_F(LocalProcessTest, AProcessInAContainerIsHereByThePidThatItHasHere) {
  const Program program(path_);
  ProcessSnapshot process = program.Snapshot();
  const int32_t pid = process.pid;
  process.pid = 1;
  ++process.pid_namespace;
  EXPECT_EQ(LocalPid(process), 0);
  EXPECT_THAT(WhyNotHere(process), HasSubstr("it is in a container"));
  process.seen_pid = pid;
  process.seen_in = OwnPidNamespace();
  EXPECT_EQ(LocalPid(process), pid);
  EXPECT_EQ(WhyNotHere(process), "");
  const LocalProcess local = ReadLocalProcess(process, IsSetting, std::chrono::seconds(60));
  EXPECT_THAT(local.settings, HasSubstr("NCCL_DEBUG_FILE="));
  EXPECT_EQ(local.log_error, "its process is in a container: run pulse capture there");
}

TEST_F(LocalProcessTest, ASnapshotMayClaimAnyTime) {
  const Program program(path_);
  ProcessSnapshot process = program.Snapshot();
  process.start_realtime_ns = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(WhyNotHere(process), "");
  process.start_realtime_ns = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(WhyNotHere(process), HasSubstr("reused this pid"));
}

std::atomic<bool> is_hanging{false};
bool Hang(std::string_view /*variable*/) {
  while (is_hanging) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

TEST_F(LocalProcessTest, ReadsThatHangDoNotPileUp) {
  const Program program(path_);
  is_hanging = true;
  const auto read = [&program] {
    return ReadLocalProcess(program.Snapshot(), Hang, std::chrono::milliseconds(1));
  };
  for (int i = 0; i < kMostLost; ++i) EXPECT_THAT(read().settings_error, HasSubstr("too long"));
  EXPECT_THAT(read().settings_error, HasSubstr("too many earlier reads"));
  is_hanging = false;
  while (read().settings.empty()) {
  }
}

}  // namespace
}  // namespace nccl_pulse
