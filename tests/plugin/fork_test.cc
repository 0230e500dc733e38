// fork while measuring: a child inherits memory and descriptors, and must use neither.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

// Runs `body` in a fork of this process and ends it; what it finds wrong fails the caller.
void InFork(const std::function<void()>& body) {
  fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // What failed before in the parent is not the child's.
    const auto failures = [] {
      return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    };
    const int before = failures();
    body();
    fflush(nullptr);
    _exit(failures() == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

int CountThreads() {
  int count = 0;
  DIR* directory = opendir("/proc/self/task");
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(directory);
  return count;
}

bool IsSegmentMapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("nccl-pulse") != std::string::npos && line.find(".so") == std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST_WITH_COMM(ForkTest, ChildWithoutInit, kKernel) {
  comm.RunWithKernel(2, 1000, 2000);
  void* coll = comm.Enqueue(1);
  void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  void* channel = Start(comm.context(), ChannelEvent(coll, 0, 3000));
  EXPECT_TRUE(IsSegmentMapped());
  const ProcessSnapshot before = ReadSnapshot();
  InFork([&] {
    EXPECT_TRUE(FindSegments().empty());
    EXPECT_FALSE(IsSegmentMapped());
    // The sanitizer's own thread is none of the plugin's.
    EXPECT_LE(CountThreads(), kThreadSanitized ? 2 : 1);
    EXPECT_EQ(Start(comm.context(), CollEvent(nullptr, 0, 1)), nullptr);
    EXPECT_EQ(Start(comm.context(), ProxyOpEvent(coll, getpid())), nullptr);
    EXPECT_EQ(Start(comm.context(), ChannelEvent(coll, 0, 1)), nullptr);
    EXPECT_EQ(Start(comm.context(), LaunchEvent()), nullptr);
    Record(proxy, abi::kStateProxyOpInProgress);
    Stop(coll);
    Stop(proxy);
    RecordAndStopChannel(channel, 4000);
    Stop(nullptr);
    comm.Finalize();
  });
  const ProcessSnapshot after = ReadSnapshot();
  EXPECT_EQ(after.ignored, before.ignored);
  EXPECT_EQ(after.callbacks, before.callbacks);
  EXPECT_EQ(Operations(Find(after, 1)), 2u);
  EXPECT_FALSE(Find(after, 1).finalized);
  Stop(proxy);
  RecordAndStopChannel(channel, 4000);
  comm.Finalize();
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kDurationKernel), 2u);
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kCompletionProxy), 1u);
}

TEST_WITH_COMM(ForkTest, ChildWithInitStartsAfresh, kKernel) {
  void* coll = comm.Enqueue(1);
  const int32_t parent_pid = getpid();
  InFork([&] {
    NcclCommunicator own(2);
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(snapshot.pid, getpid());
    EXPECT_EQ(snapshot.communicators.size(), 1u);
    own.RunWithKernel(2, 1000, 2000);
    own.RunWithProxy();
    // The parent's tickets are another process' now.
    EXPECT_EQ(Start(comm.context(), CollEvent(nullptr, 0, 1)), nullptr);
    EXPECT_EQ(Start(own.context(), ProxyOpEvent(coll, parent_pid)), nullptr);
    const ProcessSnapshot after = own.FinalizeAndRead();
    EXPECT_EQ(Timed(Find(after, 2), LatencyKind::kDurationKernel), 1u);
    EXPECT_EQ(Timed(Find(after, 2), LatencyKind::kCompletionProxy), 1u);
    EXPECT_EQ(Ignored(after), 2u);
    // Its background thread lives too.
    const int64_t poll_ns = after.last_poll_realtime_ns;
    EXPECT_TRUE(WaitUntil([&] { return ReadSnapshot().last_poll_realtime_ns > poll_ns; }));
    InFork([&] { EXPECT_TRUE(FindSegments().empty()); });
  });
  comm.RunWithKernel(2, 1000, 2000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(snapshot.pid, getpid());
  EXPECT_EQ(snapshot.communicators.size(), 1u);
  EXPECT_EQ(Operations(Find(snapshot, 1)), 2u);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

// Loaded, but no communicator yet: a launcher that forks its workers.
TEST_IN_CHILD(ForkTest, BeforeTheFirstInit) {
  FindProfiler(5);
  for (uint64_t worker = 1; worker <= 3; ++worker) {
    InFork([worker] {
      NcclCommunicator comm(worker);
      comm.RunWithProxy();
      comm.Finalize();
      EXPECT_EQ(Timed(Find(ReadSnapshot(), worker), LatencyKind::kCompletionProxy), 1u);
    });
  }
}

// A data loader forks at any moment, also while another thread is within a callback or in init.
TEST(ForkTest, WhileOthersMeasure) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer itself may deadlock in such a child";
  RunInChild({}, [] {
    NcclCommunicator first(1);
    std::atomic<bool> end{false};
    uint64_t operations = 0;
    uint64_t communicators = 0;
    std::thread callbacks([&] {
      while (!end) {
        first.RunWithProxy();
        ++operations;
      }
    });
    std::thread inits([&] {
      while (!end) {
        NcclCommunicator comm(100 + communicators++);
        comm.RunWithProxy();
        comm.Finalize();
      }
    });
    for (int i = 0; i < 30; ++i) {
      InFork([&] {
        EXPECT_EQ(Start(first.context(), CollEvent(nullptr, 0, 1)), nullptr);
        NcclCommunicator own(2);
        own.RunWithProxy();
        own.Finalize();
      });
    }
    end = true;
    callbacks.join();
    inits.join();
    first.Finalize();
    EXPECT_EQ(Operations(Find(ReadSnapshot(), 1)), operations);
    EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kCompletionProxy), operations);
  });
}

}  // namespace
}  // namespace nccl_pulse
