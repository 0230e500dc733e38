// Threads: NCCL calls from many, and gives some a life of one group.
#include "tests/prelude/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

// A non-blocking communicator launches every group from a thread of its own.
TEST_WITH_COMM(ThreadsTest, FreshThreadForEveryGroup) {
  constexpr int kGroups = 4000;
  for (int i = 0; i < kGroups; ++i) {
    std::thread([&comm] { comm.RunWithProxy(); }).join();
  }
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(Calls(measured), uint64_t{kGroups});
  EXPECT_EQ(measured.launches, uint64_t{kGroups});
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), uint64_t{kGroups});
  EXPECT_EQ(Ignored(snapshot), 0u);
}

TEST_IN_CHILD(ThreadsTest, InitFromSeveralThreadsAtOnce) {
  constexpr uint64_t kThreads = 16;
  constexpr uint64_t kRounds = 8;
  std::atomic<bool> begin{false};
  std::atomic<uint64_t> masks[kThreads]{};
  Threads threads(kThreads, [&](uint64_t thread) {
    while (!begin) std::this_thread::yield();
    for (uint64_t round = 0; round < kRounds; ++round) {
      NcclCommunicator comm(1 + thread * kRounds + round);
      comm.RunWithProxy();
      masks[thread] = static_cast<uint64_t>(comm.event_mask());
      comm.Finalize();
    }
  });
  begin = true;
  threads.Join();
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.communicators.size(), kThreads * kRounds);
  for (uint64_t id = 1; id <= kThreads * kRounds; ++id) {
    EXPECT_EQ(Calls(Find(snapshot, id)), 1u);
    EXPECT_EQ(Timed(Find(snapshot, id), LatencyKind::kCompletionProxy), 1u);
  }
  for (const auto& mask : masks) EXPECT_EQ(mask, masks[0]);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

// More threads in the same communicator at once than it has lanes, and than it has places: what
// cannot be counted is counted as such. NCCL forbids it; then a call may be missing when another
// thread calls at the same moment, but none is counted twice.
TEST_IN_CHILD(ThreadsTest, CrowdOnOneCommunicator, kKernel) {
  constexpr uint64_t kThreads = 12;
  constexpr uint64_t kOperations = 20000;
  NcclCommunicator comm(1);
  Threads(kThreads, [&](uint64_t) {
    for (uint64_t i = 0; i < kOperations; ++i) {
      Start(comm.context(), CallEvent("AllReduce", 1, "ncclInt8"));
      Stop(Start(comm.context(), CollEvent(nullptr, i, 1)));
    }
  }).Join();
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_GT(Calls(measured), 0u);
  EXPECT_LE(Calls(measured), kThreads * kOperations);
  // One that found its place being claimed by a thread which had lost the CPU is counted as an
  // operation, but lost; one that found no lane is not counted as an operation, nor as a call.
  const uint64_t operations = Operations(measured) + Ignored(snapshot, IgnoredReason::kNoRoom) -
                              Untimed(measured, UntimedReason::kLost);
  EXPECT_GE(operations, kThreads * kOperations);
  EXPECT_LE(Calls(measured) + operations, 2 * kThreads * kOperations);
  EXPECT_EQ(Untimed(measured), Operations(measured));
}

}  // namespace
}  // namespace nccl_pulse
