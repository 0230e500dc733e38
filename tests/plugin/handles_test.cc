// Handles that NCCL stops or records at the wrong time, or too often.
#include <gtest/gtest.h>
#include <unistd.h>

#include "plugin/tracker/operation_ring.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

using ::testing::Test;
using NameCounts = std::map<std::string, uint64_t>;

const Environment kAuto;

TEST_WITH_COMM(HandlesTest, NullIsCounted, kAuto) {
  comm.RunWithProxy();
  Stop(nullptr);
  Record(nullptr, abi::kStateProxyOpInProgress);
  const uint64_t gpu_ns = 1;
  Record(nullptr, abi::kStateKernelChStop, &gpu_ns);
  comm.RunWithProxy();
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"null_handle", 3}}));
  EXPECT_EQ(Calls(Find(snapshot, 1)), 2u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 2u);
}

TEST_WITH_COMM(HandlesTest, CollStoppedTwice, kAuto) {
  void* coll = comm.Enqueue();
  Stop(coll);
  Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"repeated_stop", 1}}));
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 1u);
}

TEST_WITH_COMM(HandlesTest, ProxyOpStoppedTwiceDoesNotStandForAnother, kAuto) {
  void* coll = comm.Enqueue();
  void* first = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  void* second = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  Stop(first);
  Stop(first);  // would complete the operation if it counted
  comm.Finalize();
  Stop(second);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Ignored(snapshot, IgnoredReason::kRepeatedStop), 1u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 0u);
  EXPECT_EQ(Uncompleted(Find(snapshot, 1)), 1u);
}

// A handle that nobody was given, of a child that has not started.
TEST_WITH_COMM(HandlesTest, ProxyOpThatNeverStarted) {
  void* coll = comm.Enqueue();
  void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  const auto bits = reinterpret_cast<uint64_t>(proxy);
  const uint64_t next =
      Ticket::Pack(Ticket::Process(bits), Ticket::Kind(bits), Ticket::Child(bits) + 1,
                   Ticket::Generation(bits), Ticket::Operation(bits), Ticket::Communicator(bits));
  Stop(reinterpret_cast<void*>(next));  // NOLINT(performance-no-int-to-ptr)
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (NameCounts{{"stop_without_start", 1}}));
  Stop(proxy);
  comm.Finalize();
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kCompletionProxy), 1u);
}

TEST_WITH_COMM(HandlesTest, ManyProxyOpsOfOneOperation, kAuto) {
  constexpr int kMoreThanTicketsNumber = 300;
  comm.RunWithProxy(kMoreThanTicketsNumber);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 1u);
}

TEST_WITH_COMM(HandlesTest, EverythingAfterFinalize, kKernel) {
  NcclCommunicator other(2);
  void* coll = Start(comm.context(), CollEvent(nullptr, 0, 2));
  void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  void* channel = Start(comm.context(), ChannelEvent(coll, 0, 1000));
  const ProcessSnapshot before = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(before), NameCounts{});

  Record(proxy, abi::kStateProxyOpInProgress);
  Stop(proxy);
  Stop(coll);
  RecordAndStopChannel(channel, 2000);
  EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kAfterClose), 5u);
  EXPECT_EQ(Start(comm.context(), ProxyOpEvent(coll, getpid())), nullptr);
  EXPECT_EQ(Start(comm.context(), ChannelEvent(coll, 1, 1000)), nullptr);
  EXPECT_EQ(Start(comm.context(), CollEvent(nullptr, 1, 2)), nullptr);
  EXPECT_EQ(Start(comm.context(), LaunchEvent()), nullptr);
  EXPECT_EQ(Start(comm.context(), CallEvent("AllReduce", 1, "ncclInt8")), nullptr);
  comm.Finalize();
  other.RunWithKernel(2, 1000, 2000);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"after_close", 5}, {"stale_context", 6}}));
  EXPECT_EQ(Calls(Find(snapshot, 1)), Calls(Find(before, 1)));
  EXPECT_EQ(Uncompleted(Find(snapshot, 1)), 1u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 0u);
  EXPECT_EQ(Timed(Find(snapshot, 2), LatencyKind::kDurationKernel), 1u);
}

TEST_WITH_COMM(HandlesTest, OlderGeneration, kKernel) {
  void* coll = comm.Enqueue(1);
  void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  void* channel = Start(comm.context(), ChannelEvent(coll, 0, 1000));
  // Its place is used again twice, the second time by an operation that has the same children.
  for (uint32_t i = 0; i < 2 * kOperationSlots - 1; ++i) comm.RunWithKernel(1, 2000, 3000);
  void* newer = comm.Enqueue(1);
  void* newer_proxy = Start(comm.context(), ProxyOpEvent(newer, getpid()));
  void* newer_channel = Start(comm.context(), ChannelEvent(newer, 0, 4000));
  EXPECT_NE(newer, coll);
  EXPECT_NE(newer_proxy, proxy);

  Stop(coll);
  Record(proxy, abi::kStateProxyOpInProgress);
  Stop(proxy);
  RecordAndStopChannel(channel, 2000);
  EXPECT_EQ(Start(comm.context(), ProxyOpEvent(coll, getpid())), nullptr);
  EXPECT_EQ(Start(comm.context(), ChannelEvent(coll, 0, 1000)), nullptr);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (NameCounts{{"stale_handle", 7}}));

  Stop(newer_proxy);
  RecordAndStopChannel(newer_channel, 5000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"stale_handle", 7}}));
  EXPECT_EQ(Operations(measured), 2u * kOperationSlots + 1);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionKernel), 2u * kOperationSlots - 1);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), 1u);
  EXPECT_EQ(Uncompleted(measured), 1u);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel), 2u * kOperationSlots);
  EXPECT_EQ(Untimed(measured, UntimedReason::kLost), 1u);
}

// The place is taken by an operation without channels: nothing but the generation tells the late
// stop apart.
TEST_WITH_COMM(HandlesTest, OlderChannelOfPlaceWithoutChannels, kKernel) {
  void* coll = comm.Enqueue(1);
  void* channel = Start(comm.context(), ChannelEvent(coll, 0, 1000));
  for (uint32_t i = 0; i < kOperationSlots; ++i) comm.Enqueue(1);
  RecordAndStopChannel(channel, 2000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"stale_handle", 2}}));
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kInvisible), uint64_t{kOperationSlots});
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kLost), 1u);
}

TEST_WITH_COMM(HandlesTest, RecordWithoutArguments, kKernel) {
  void* coll = comm.Enqueue(1);
  void* channel = Start(comm.context(), ChannelEvent(coll, 0, 1000));
  Record(channel, abi::kStateKernelChStop);
  Record(coll, abi::kStateGroupStartApiStop);  // NCCL passes none with the states of API groups
  Stop(channel);
  comm.RunWithKernel(2, 3000, 4000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"missing_argument", 1}}));
  // It ended, so it is complete; when it ended on the GPU is not known.
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionKernel), 2u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationKernel), 1u);
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kLost), 1u);
}

TEST_WITH_COMM(HandlesTest, StartWithoutStopStaysUncompleted, kAuto) {
  void* coll = comm.Enqueue();
  Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
  Start(comm.context(), ProxyOpEvent(coll, getpid()));  // aborted: never stops
  // Its place is needed; from then on it is known not to have completed.
  for (uint32_t i = 0; i < kOperationSlots; ++i) comm.RunWithProxy();
  EXPECT_EQ(Uncompleted(Find(ReadSnapshot(), 1)), 1u);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Uncompleted(Find(snapshot, 1)), 1u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), uint64_t{kOperationSlots});
  EXPECT_EQ(Calls(Find(snapshot, 1)), kOperationSlots + 1u);
}

TEST_WITH_COMM(HandlesTest, CollWithoutStopCompletesByItsProxyOps, kAuto) {
  void* coll = Start(comm.context(), CollEvent(nullptr, 0, 2));
  Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
  comm.Finalize();
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kCompletionProxy), 1u);
}

}  // namespace
}  // namespace nccl_pulse
