// How long work of a communicator has stood still before, and then went on: by what was called
// last.
#include <gtest/gtest.h>

#include <map>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

// Seconds by operation, rounded.
using Waits = std::map<std::string, uint64_t>;
Waits WaitsOf(const StreamCommunicator& comm) {
  Waits waits;
  for (const LongestWaitSnapshot& wait : comm.Read().longest_waits) {
    waits[wait.op] = (wait.longest_ns + kSecond / 2) / kSecond;
  }
  return waits;
}

// Within a second of what the test's clock says: a slow machine's own time comes on top.
void ExpectWait(const StreamCommunicator& comm, const std::string& op, uint64_t seconds) {
  const Waits waits = WaitsOf(comm);
  ASSERT_EQ(waits.count(op), 1u) << op;
  EXPECT_GE(waits.at(op) + 1, seconds) << op;
  EXPECT_LE(waits.at(op), seconds + 20) << op;
}

void End(FakeCuda& gpu, const StreamCommunicator& comm) {
  gpu.Release(comm.stream());
  gpu.Advance(kSecond);
  WaitForPoll();
}

// The operation's launch waits for others, and is seen to.
void Wait(FakeCuda& gpu, StreamCommunicator& comm, const char* op, uint64_t seconds) {
  comm.Run(FakeCuda::kForever, op);
  WaitForPoll();
  AdvanceClock(seconds * kSecond);
  WaitForPoll();
  End(gpu, comm);
}

TEST(LongestWaitTest, TheLongestThatEndedByOperation) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    for (int i = 0; i < 5; ++i) comm.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(WaitsOf(comm), Waits{});
    Wait(gpu, comm, "AllReduce", 600);
    ExpectWait(comm, "AllReduce", 600);
    EXPECT_EQ(WaitsOf(comm).size(), 1u);
    Wait(gpu, comm, "AllReduce", 60);
    ExpectWait(comm, "AllReduce", 600);
    Wait(gpu, comm, "AllGather", 60);
    ExpectWait(comm, "AllGather", 60);
    Wait(gpu, comm, "AllReduce", 1200);
    ExpectWait(comm, "AllReduce", 1200);
    ExpectWait(comm, "AllGather", 60);
    Wait(gpu, comm, "NotYetInvented", 30);
    ExpectWait(comm, "other", 30);
    EXPECT_EQ(WaitsOf(comm).size(), 3u);
  });
}

// What was called last while it lasted, and since the last completion, not since the launch.
TEST(LongestWaitTest, OfWhatStoodStill) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    comm.Run(50 * kSecond, "AllReduce");
    comm.Run(FakeCuda::kForever, "AllReduce");
    WaitForPoll();
    // The first of them completes after 50 s, and the second stands for 100 s from then on.
    AdvanceClock(50 * kSecond);
    WaitForPoll();
    gpu.Advance(50 * kSecond);
    WaitForPoll();
    ExpectWait(comm, "AllReduce", 50);
    comm.Run(kMs, "ReduceScatter");
    WaitForPoll();
    AdvanceClock(100 * kSecond);
    WaitForPoll();
    End(gpu, comm);
    ExpectWait(comm, "AllReduce", 50);
    ExpectWait(comm, "ReduceScatter", 100);
  });
}

TEST(LongestWaitTest, WhatDoesNotCount) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    // Nothing in flight.
    comm.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    AdvanceClock(600 * kSecond);
    WaitForPoll();
    comm.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(WaitsOf(comm), Waits{});
    // Nobody looked: it may have ended long before.
    gpu.Block("cuEventQuery");
    comm.Run(kMs);
    ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));
    gpu.Advance(kSecond);
    AdvanceClock(600 * kSecond);
    gpu.Unblock();
    WaitForPoll();
    EXPECT_EQ(WaitsOf(comm), Waits{});
    // One that ends because its communicator does.
    comm.Run(FakeCuda::kForever);
    WaitForPoll();
    AdvanceClock(600 * kSecond);
    WaitForPoll();
    EXPECT_EQ(WaitsOf(comm), Waits{}) << "it has not ended";
    comm.Finalize();
    End(gpu, comm);
    EXPECT_EQ(WaitsOf(comm), Waits{});
  });
}

TEST(LongestWaitTest, ThePlacesNextCommunicatorHasWaitedForNothing) {
  RunWithGpu([](FakeCuda& gpu) {
    StreamCommunicator comm(gpu, 1);
    Wait(gpu, comm, "AllReduce", 60);
    comm.Run(FakeCuda::kForever);
    WaitForPoll();
    AdvanceClock(60 * kSecond);
    WaitForPoll();
    comm.Finalize();
    AdvanceClock(6 * kSecond);
    WaitForPoll();
    AdvanceClock(700 * kSecond);
    WaitForPoll();
    StreamCommunicator next(gpu, 2);
    EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
    EXPECT_EQ(WaitsOf(next), Waits{});
    next.Run(kMs);
    gpu.Advance(kSecond);
    WaitForPoll();
    EXPECT_EQ(WaitsOf(next), Waits{});
  });
}

}  // namespace
}  // namespace nccl_pulse
