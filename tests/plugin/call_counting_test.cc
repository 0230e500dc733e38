// Each call is counted when it is made, once, whatever becomes of it.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <thread>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kBytes = 4096;

void* Call(const NcclCommunicator& communicator, uint64_t bytes = kBytes) {
  return Start(communicator.context(), CallEvent("AllReduce", bytes / 4, "ncclFloat32"));
}

uint64_t CallsNow(uint64_t comm_id) { return Calls(Find(ReadSnapshot(), comm_id)); }

uint64_t CallCallbacks() {
  return ReadSnapshot().callbacks[static_cast<size_t>(CallbackKind::kApi)];
}

// NCCL waits for a peer before it launches, say.
TEST_IN_CHILD(CallCounting, WithoutAnOperation) {
  NcclCommunicator communicator(1);
  for (uint64_t i = 1; i <= 1000; ++i) {
    Call(communicator);
    ASSERT_EQ(CallsNow(1), i);
  }
  EXPECT_EQ(Bytes(Find(ReadSnapshot(), 1)), 1000 * kBytes);
  EXPECT_EQ(CallCallbacks(), 1000u);
  // An operation that comes after all does not count it once more.
  Stop(Start(communicator.context(), CollEvent(nullptr, 0, 2)));
  EXPECT_EQ(CallsNow(1), 1000u);
}

// More kinds than there is room for to remember them, in turn.
TEST_IN_CHILD(CallCounting, OfManySizes) {
  constexpr uint64_t kSizes = 200;
  NcclCommunicator communicator(1);
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < 20 * kSizes; ++i) {
    const uint64_t size = 4 * (1 + i % kSizes) * (i % 3 == 0 ? 1 : 100000);
    Call(communicator, size);
    bytes += size;
  }
  const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
  EXPECT_EQ(Calls(measured), 20 * kSizes);
  EXPECT_EQ(Bytes(measured), bytes);
  for (const CallCountSnapshot& calls : measured.calls) EXPECT_EQ(calls.op, "AllReduce");
}

// The next communicator has the same place. It learns anew where its calls are counted.
TEST_IN_CHILD(CallCounting, OfTheNextCommunicator, {"NCCL_PULSE_SERIES_LIMIT", "64"}) {
  for (uint64_t comm_id = 1; comm_id <= 200; ++comm_id) {
    NcclCommunicator communicator(comm_id);
    for (uint64_t i = 0; i < comm_id; ++i) Call(communicator, 4 + 4 * (comm_id % 7));
    EXPECT_EQ(CallsNow(comm_id), comm_id);
    communicator.Finalize();
  }
}

// A non-blocking communicator launches on another thread while its own goes on.
TEST_IN_CHILD(CallCounting, WhileAnotherThreadReportsOperations) {
  constexpr uint64_t kOperations = 50000;
  NcclCommunicator communicator(1);
  std::thread launching([&] {
    for (uint64_t i = 0; i < kOperations; ++i) {
      Stop(Start(communicator.context(), CollEvent(nullptr, i, 2)));
    }
  });
  for (uint64_t i = 0; i < kOperations; ++i) Call(communicator);
  launching.join();
  const ProcessSnapshot snapshot = communicator.FinalizeAndRead();
  EXPECT_EQ(Calls(Find(snapshot, 1)), kOperations);
  EXPECT_EQ(Bytes(Find(snapshot, 1)), kOperations * kBytes);
  EXPECT_EQ(Operations(Find(snapshot, 1)), kOperations);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

// From now on, as a container's filter of system calls may.
void RefuseMembarrier() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  // Of all threads, the plugin's own among them.
  ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
  ASSERT_EQ(syscall(SYS_membarrier, 0, 0, 0), -1);
}

// A place is used again, which takes full fences then.
TEST_IN_CHILD(CallCounting, WhereTheKernelRefusesMembarrier, {"NCCL_PULSE_SERIES_LIMIT", "64"}) {
  RefuseMembarrier();
  for (uint64_t comm_id = 1; comm_id <= 50; ++comm_id) {
    NcclCommunicator communicator(comm_id);
    for (uint64_t i = 0; i < comm_id; ++i) Call(communicator);
    EXPECT_EQ(CallsNow(comm_id), comm_id);
    communicator.Finalize();
  }
  EXPECT_GT(ReadSnapshot().recycled_communicators, 0u);
}

// Then nobody knows whether a callback is still writing to a communicator that has ended: its
// numbers stay.
TEST_IN_CHILD(CallCounting, WhereTheKernelRefusesMembarrierLater,
              {"NCCL_PULSE_SERIES_LIMIT", "64"}) {
  NcclCommunicator first(1);
  Call(first);
  first.Finalize();
  RefuseMembarrier();
  for (uint64_t comm_id = 2; comm_id <= 50; ++comm_id) {
    NcclCommunicator communicator(comm_id);
    Call(communicator);
    communicator.Finalize();
  }
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.recycled_communicators, 0u);
  EXPECT_EQ(snapshot.communicators.size(), 50u);
  EXPECT_EQ(Calls(Find(snapshot, 1)), 1u);
}

}  // namespace
}  // namespace nccl_pulse
