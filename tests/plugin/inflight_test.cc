// Since when operations are in flight where no events follow the launches: from ProxyOps, and from
// KernelCh. What cannot be known is absent.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/plugin/older_api.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

CommunicatorSnapshot Look(uint64_t comm_id = 1) {
  WaitForPoll();
  return Find(ReadSnapshot(), comm_id);
}

void ExpectUnknown(const CommunicatorSnapshot& measured) {
  EXPECT_EQ(measured.operations_source, CompletionSource::kNone);
  EXPECT_EQ(measured.oldest_operation_realtime_ns, 0);
  EXPECT_FALSE(measured.has_heartbeat);
}
void ExpectIdle(const CommunicatorSnapshot& measured, CompletionSource source) {
  EXPECT_EQ(measured.operations_source, source);
  EXPECT_EQ(measured.oldest_operation_realtime_ns, 0);
}
// The last enqueue is also the last launch that is seen.
void ExpectInFlightSince(const CommunicatorSnapshot& measured, CompletionSource source,
                         int64_t realtime_ns) {
  EXPECT_EQ(measured.operations_source, source);
  EXPECT_NEAR(static_cast<double>(measured.oldest_operation_realtime_ns - realtime_ns), 0, 1e8);
}

void* StartProxyOp(const NcclCommunicator& comm, void* operation) {
  return Start(comm.context(), ProxyOpEvent(operation, getpid()));
}

TEST_WITH_GPU(InflightTest, ANetworkOperationIsInFlightSinceItsEnqueue) {
  gpu.MakeCurrent(nullptr);
  NcclCommunicator comm(1);
  ExpectUnknown(Look());
  for (int i = 0; i < 5; ++i) comm.RunWithProxy();
  ExpectIdle(Look(), CompletionSource::kProxy);
  void* operation = comm.Enqueue();
  const int64_t since = Look().last_launch_realtime_ns;
  ExpectIdle(Look(), CompletionSource::kProxy);  // no network traffic, or not yet
  void* send = StartProxyOp(comm, operation);
  void* receive = StartProxyOp(comm, operation);
  ExpectInFlightSince(Look(), CompletionSource::kProxy, since);
  Stop(send);
  AdvanceClock(60 * kSecond);
  ExpectInFlightSince(Look(), CompletionSource::kProxy, since);
  // Others, enqueued behind it, do not change that.
  for (int i = 0; i < 10; ++i) StartProxyOp(comm, comm.Enqueue());
  ExpectInFlightSince(Look(), CompletionSource::kProxy, since);
  Stop(receive);
  EXPECT_GT(Look().oldest_operation_realtime_ns, since + 50 * int64_t{1000000000});
  comm.Finalize();
  ExpectUnknown(Look());
}

TEST_WITH_GPU(InflightTest, WithKernelTimingUntilAllChannelsHaveStopped, kKernel) {
  gpu.MakeCurrent(nullptr);
  NcclCommunicator comm(1);
  ExpectUnknown(Look());
  comm.RunWithKernel(2, 1000, 2000);
  ExpectIdle(Look(), CompletionSource::kKernel);
  void* operation = comm.Enqueue(2);
  const int64_t since = Look().last_launch_realtime_ns;
  // It waits on the GPU before its first channel.
  ExpectInFlightSince(Look(), CompletionSource::kKernel, since);
  void* first = Start(comm.context(), ChannelEvent(operation, 0, 3000));
  void* second = Start(comm.context(), ChannelEvent(operation, 1, 3000));
  RecordAndStopChannel(first, 4000);
  AdvanceClock(60 * kSecond);
  ExpectInFlightSince(Look(), CompletionSource::kKernel, since);
  RecordAndStopChannel(second, 4000);
  ExpectIdle(Look(), CompletionSource::kKernel);
}

// Before API v5 there is no launch, and ProxyOps there are.
TEST_WITH_GPU(InflightTest, AnOlderApi) {
  OlderCommunicator comm(1);
  for (int i = 0; i < 2; ++i) comm.Stop(comm.StartProxyOp(comm.Enqueue()));
  void* last = comm.StartProxyOp(comm.Enqueue());
  EXPECT_EQ(Look().operations_source, CompletionSource::kProxy);
  EXPECT_NE(Look().oldest_operation_realtime_ns, 0);
  EXPECT_EQ(ReadSnapshot().completion_source, "proxy");
  comm.Stop(last);
  ExpectIdle(Look(), CompletionSource::kProxy);
}

// With events behind the launches they say it all; when the driver fails, the network goes on.
TEST_WITH_GPU(InflightTest, AfterTheDriverHasFailed) {
  NcclCommunicator comm(1);
  EXPECT_TRUE(Look().has_heartbeat);
  EXPECT_EQ(ReadSnapshot().completion_source, "stream");
  gpu.Fail("", FakeCuda::kIllegalAddress);
  comm.RunWithProxy();
  StartProxyOp(comm, comm.Enqueue());
  const CommunicatorSnapshot measured = Look();
  EXPECT_FALSE(measured.has_heartbeat);
  EXPECT_EQ(measured.operations_source, CompletionSource::kProxy);
  EXPECT_NE(measured.oldest_operation_realtime_ns, 0);
}

TEST_WITH_GPU(InflightTest, ThePlaceOfAnotherCommunicatorSaysNothing) {
  gpu.MakeCurrent(nullptr);
  for (uint64_t i = 1; i <= 3; ++i) {
    NcclCommunicator comm(i);
    ExpectUnknown(Look(i));
    comm.RunWithProxy();
    StartProxyOp(comm, comm.Enqueue());
    EXPECT_NE(Look(i).oldest_operation_realtime_ns, 0);
    comm.Finalize();
    AdvanceClock(700 * kSecond);
  }
  EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
}

}  // namespace
}  // namespace nccl_pulse
