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
  AdvanceAndPoll(gpu, kSecond);
}

// The clock goes on, and the background thread looks all the time.
void Pass(uint64_t seconds) {
  for (uint64_t i = 0; i < seconds; ++i) AdvanceClockAndPoll(kSecond);
}

// The operation's launch waits for others, and is seen to.
void Wait(FakeCuda& gpu, StreamCommunicator& comm, const char* op, uint64_t seconds) {
  comm.Run(FakeCuda::kForever, op);
  WaitForPoll();
  Pass(seconds);
  End(gpu, comm);
}

TEST_WITH_STREAM(LongestWaitTest, TheLongestThatEndedByOperation) {
  for (int i = 0; i < 5; ++i) comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(WaitsOf(comm), Waits{});
  AdvanceClock(3600 * kSecond);
  Wait(gpu, comm, "AllReduce", 120);
  ExpectWait(comm, "AllReduce", 120);
  EXPECT_EQ(WaitsOf(comm).size(), 1u);
  Wait(gpu, comm, "AllReduce", 30);
  ExpectWait(comm, "AllReduce", 120);
  Wait(gpu, comm, "AllGather", 60);
  ExpectWait(comm, "AllGather", 60);
  Wait(gpu, comm, "AllReduce", 240);
  ExpectWait(comm, "AllReduce", 240);
  ExpectWait(comm, "AllGather", 60);
  Wait(gpu, comm, "NotYetInvented", 30);
  ExpectWait(comm, "NotYetInvented", 30);
  EXPECT_EQ(WaitsOf(comm).size(), 3u);
}

// A long wait of one size is no measure for another, and each counts for a while.
TEST_WITH_STREAM(LongestWaitTest, OfEachSizeUntilWhenItCounts) {
  AdvanceClock(100 * kSecond);
  comm.Run(FakeCuda::kForever, "AllReduce", 64);
  WaitForPoll();
  Pass(120);
  End(gpu, comm);
  const int64_t ended = comm.Read().last_completion_realtime_ns;
  Wait(gpu, comm, "AllReduce", 60);
  ASSERT_EQ(comm.Read().longest_waits.size(), 1u);
  comm.Run(FakeCuda::kForever, "AllReduce", 1 << 20);
  WaitForPoll();
  Pass(60);
  End(gpu, comm);
  const std::vector<LongestWaitSnapshot> waits = comm.Read().longest_waits;
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].size_class, 0);
  EXPECT_EQ(waits[1].size_class, 4);
  EXPECT_NEAR(static_cast<double>(waits[0].counts_until_realtime_ns - ended) / kSecond, 300, 20);
  EXPECT_NEAR(static_cast<double>(waits[1].longest_ns) / kSecond, 60, 20);
}

// What was called last while it lasted, and since the last completion, not since the launch.
TEST_WITH_STREAM(LongestWaitTest, OfWhatStoodStill) {
  comm.Run(50 * kSecond, "AllReduce");
  comm.Run(FakeCuda::kForever, "AllReduce");
  WaitForPoll();
  // The first of them completes after 50 s, and the second stands for 100 s from then on.
  Pass(50);
  AdvanceAndPoll(gpu, 50 * kSecond);
  ExpectWait(comm, "AllReduce", 50);
  comm.Run(kMs, "ReduceScatter");
  WaitForPoll();
  Pass(100);
  End(gpu, comm);
  ExpectWait(comm, "AllReduce", 50);
  ExpectWait(comm, "ReduceScatter", 100);
}

TEST_WITH_STREAM(LongestWaitTest, WhatDoesNotCount) {
  // Nothing in flight.
  comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  AdvanceClockAndPoll(600 * kSecond);
  comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
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
  // The process was suspended, and its work ended some time after that.
  comm.Run(FakeCuda::kForever);
  WaitForPoll();
  AdvanceClockAndPoll(600 * kSecond);
  Pass(10);
  End(gpu, comm);
  ExpectWait(comm, "AllReduce", 10);
  // One that ends because its communicator does.
  comm.Run(FakeCuda::kForever, "AllGather");
  WaitForPoll();
  Pass(30);
  EXPECT_EQ(WaitsOf(comm).size(), 1u) << "it has not ended";
  comm.Finalize();
  End(gpu, comm);
  EXPECT_EQ(WaitsOf(comm).size(), 1u);
}

TEST_WITH_STREAM(LongestWaitTest, ThePlacesNextCommunicatorHasWaitedForNothing) {
  Wait(gpu, comm, "AllReduce", 60);
  comm.Run(FakeCuda::kForever);
  WaitForPoll();
  AdvanceClockAndPoll(60 * kSecond);
  comm.Finalize();
  AdvanceClockAndPoll(6 * kSecond);
  AdvanceClockAndPoll(700 * kSecond);
  StreamCommunicator next(gpu, 2);
  EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
  EXPECT_EQ(WaitsOf(next), Waits{});
  next.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(WaitsOf(next), Waits{});
}

}  // namespace
}  // namespace nccl_pulse
