// A call is counted by the operation that it becomes, and by others where it becomes none.
#include <gtest/gtest.h>

#include <thread>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

void* Call(const NcclCommunicator& communicator) {
  return Start(communicator.context(), CallEvent("AllReduce", 1024, "ncclFloat32"));
}

uint64_t CallsNow(uint64_t comm_id) { return Calls(Find(ReadSnapshot(), comm_id)); }

uint64_t CallCallbacks() {
  return ReadSnapshot().callbacks[static_cast<size_t>(CallbackKind::kApi)];
}

TEST(UncountedCall, CountedWithItsOperation) {
  RunInChild({}, [] {
    NcclCommunicator communicator(1);
    for (uint64_t i = 1; i <= 1000; ++i) {
      communicator.Enqueue();
      ASSERT_EQ(CallsNow(1), i);
    }
    EXPECT_EQ(Bytes(Find(ReadSnapshot(), 1)), 1000 * NcclCommunicator::kBytes);
    EXPECT_EQ(CallCallbacks(), 1000u);
  });
}

// NCCL waits for a peer before it launches, say.
TEST(UncountedCall, CountedSoonWhenNoOperationComes) {
  RunInChild({}, [] {
    NcclCommunicator communicator(1);
    Call(communicator);
    EXPECT_TRUE(WaitUntil([] { return CallsNow(1) == 1; }));
    EXPECT_EQ(Bytes(Find(ReadSnapshot(), 1)), 4096u);
    EXPECT_EQ(CallCallbacks(), 1u);
    // Not once more by the operation that comes after all.
    Stop(Start(communicator.context(), CollEvent(nullptr, 0, 2)));
    EXPECT_EQ(CallsNow(1), 1u);
  });
}

TEST(UncountedCall, CountedByTheNextOne) {
  RunInChild({}, [] {
    NcclCommunicator communicator(1);
    constexpr uint64_t kCalls = 5;
    for (uint64_t i = 0; i < kCalls; ++i) Call(communicator);
    EXPECT_GE(CallsNow(1), kCalls - 1);
    Stop(Start(communicator.context(), CollEvent(nullptr, 0, 2)));
    EXPECT_EQ(CallsNow(1), kCalls);
    EXPECT_EQ(CallCallbacks(), kCalls);
  });
}

TEST(UncountedCall, CountedAtTheEnd) {
  RunInChild({}, [] {
    NcclCommunicator communicator(1);
    Call(communicator);
    communicator.Finalize();
    EXPECT_EQ(CallsNow(1), 1u);
    // And not again in the communicator that comes after it.
    NcclCommunicator next(2);
    next.Enqueue();
    EXPECT_EQ(CallsNow(2), 1u);
    EXPECT_EQ(CallsNow(1), 1u);
  });
}

// A non-blocking communicator launches on another thread while its own goes on.
TEST(UncountedCall, OperationsOfAnotherThread) {
  RunInChild({}, [] {
    constexpr uint64_t kOperations = 50000;
    NcclCommunicator communicator(1);
    std::thread launching([&] {
      for (uint64_t i = 0; i < kOperations; ++i) {
        Stop(Start(communicator.context(), CollEvent(nullptr, i, 2)));
      }
    });
    for (uint64_t i = 0; i < kOperations; ++i) Call(communicator);
    launching.join();
    communicator.Finalize();
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Calls(Find(snapshot, 1)), kOperations);
    EXPECT_EQ(Bytes(Find(snapshot, 1)), kOperations * 4096);
    EXPECT_EQ(Operations(Find(snapshot, 1)), kOperations);
    EXPECT_EQ(Ignored(snapshot), 0u);
  });
}

}  // namespace
}  // namespace nccl_pulse
