// Random bits wherever NCCL passes a handle, a parent, a context, a type or a state. Strings and
// descriptors are real: those NCCL owns, and the plugin reads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

constexpr int kRounds = 4000;
// So many random tickets at most are taken for real: one in 2^17 has this process and a kind that
// is passed over.
constexpr uint64_t kLucky = 8;

void* Pointer(uint64_t bits) { return reinterpret_cast<void*>(static_cast<uintptr_t>(bits)); }

TEST_WITH_COMM(RandomBitsTest, RandomHandlesAreCountedAsForeign, kKernel) {
  void* coll = comm.Enqueue();
  std::mt19937_64 random(20261121);
  for (int i = 0; i < kRounds; ++i) {
    Stop(Pointer(random()));
    const uint64_t gpu_ns = random();
    Record(Pointer(random()), abi::kStateKernelChStop, &gpu_ns);
    Record(Pointer(random()), static_cast<int>(random() % 32));
    Start(Pointer(random()), CollEvent(Pointer(random()), random(), 4));
    Start(Pointer(random()), CallEvent("AllReduce", random(), "ncclFloat32"));
    Start(comm.context(), ProxyOpEvent(Pointer(random()), getpid()));
    Start(comm.context(), ChannelEvent(Pointer(random()), static_cast<uint8_t>(random()), 1));
    Start(Pointer(random()), ProxyOpEvent(coll, getpid()));
    ProfilerOf<abi::v5::Profiler>(5).finalize(Pointer(random()));
  }
  comm.RunWithKernel(2, 1000, 2000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_GE(Ignored(snapshot), uint64_t{kRounds} * 9 - kLucky);
  EXPECT_LE(Ignored(snapshot), uint64_t{kRounds} * 9);
  EXPECT_EQ(Operations(Find(snapshot, 1)), 2u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationKernel), 1u);
}

// Nearly right is the harder case: a real ticket with a few bits turned over can name any place.
TEST_WITH_COMM(RandomBitsTest, DamagedTicketsHarmNothing, kKernel) {
  NcclCommunicator spared(2);
  std::mt19937_64 random(1);
  uint64_t operations = 0;
  for (int i = 0; i < kRounds; ++i) {
    void* coll = comm.Enqueue(4);
    ++operations;
    void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
    void* channel = Start(comm.context(), ChannelEvent(coll, static_cast<uint8_t>(i % 4), 1000));
    const auto damaged = [&random](void* handle) {
      auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle));
      // The ten bits that name the communicator stay: the other one must stay as it is.
      for (uint64_t n = random() % 3 + 1; n > 0; --n) bits ^= uint64_t{1} << (10 + random() % 54);
      return Pointer(bits);
    };
    Stop(damaged(coll));
    Stop(damaged(proxy));
    Stop(damaged(channel));
    const uint64_t gpu_ns = random();
    Record(damaged(channel), abi::kStateKernelChStop, &gpu_ns);
    Record(damaged(proxy), abi::kStateProxyOpInProgress);
    Start(damaged(comm.context()), LaunchEvent());
    Stop(Start(comm.context(), ProxyOpEvent(damaged(coll), getpid())));
    RecordAndStopChannel(Start(comm.context(), ChannelEvent(damaged(coll), 3, gpu_ns)), gpu_ns);
    RecordAndStopChannel(channel, 2000);
    if (i % 2 == 0) Stop(proxy);
  }
  for (uint64_t i = 0; i < 100; ++i) spared.RunWithKernel(2, 1000 + i, 2000 + i);
  comm.Finalize();
  const ProcessSnapshot snapshot = spared.FinalizeAndRead();
  EXPECT_EQ(Timed(Find(snapshot, 2), LatencyKind::kDurationKernel), 100u);
  EXPECT_EQ(Timed(Find(snapshot, 2), LatencyKind::kCompletionKernel), 100u);
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(Calls(measured), operations);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel) + Untimed(measured), operations);
  EXPECT_LE(Timed(measured, LatencyKind::kCompletionProxy) +
                Timed(measured, LatencyKind::kCompletionKernel) + Uncompleted(measured),
            operations);
}

}  // namespace
}  // namespace nccl_pulse
