// Operations like those before them are counted without a claim. Those that can have no child get
// no handle.
#include "plugin/tracker/operation_handles.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kFirst = OperationHandles::kFirst;
constexpr const char* kOps[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"};
constexpr const char* kProtocols[] = {"LL", "LL128", "SIMPLE"};

// Coll alone, of the launch that was made last. Its handle, null: none.
void* Report(void* context, uint64_t sequence, const char* op = kOps[0],
             const char* proto = kProtocols[0]) {
  Descriptor event = CollEvent(nullptr, sequence, 2);
  event.coll.func = op;
  event.coll.proto = proto;
  void* handle = Start(context, event);
  if (handle != nullptr) Stop(handle);
  return handle;
}

// So many operations with a launch each; whether the last one got a handle.
bool Operate(StreamCommunicator& communicator, uint64_t operations, uint64_t begin = 0) {
  void* handle = nullptr;
  for (uint64_t i = begin; i < begin + operations; ++i) {
    communicator.Launch(nullptr, 0);
    handle = Report(communicator.context(), i);
  }
  return handle != nullptr;
}

uint64_t OperationCallbacks() {
  return ReadSnapshot().callbacks[static_cast<size_t>(CallbackKind::kOperation)];
}

uint64_t LastSequence(const CommunicatorSnapshot& communicator) {
  uint64_t last = 0;
  for (const SequenceSnapshot& sequence : communicator.sequences) {
    last = std::max(last, sequence.sequence);
  }
  return last;
}

TEST_WITH_GPU(OperationHandles, EndWithTheFirstOperationsWithinANode) {
  StreamCommunicator communicator(gpu, 1);
  EXPECT_TRUE(Operate(communicator, kFirst));
  EXPECT_FALSE(Operate(communicator, 1, kFirst));
  EXPECT_FALSE(Operate(communicator, 9999, kFirst + 1));
  const CommunicatorSnapshot measured = communicator.Read();
  EXPECT_EQ(Operations(measured), kFirst + 10000);
  EXPECT_EQ(Untimed(measured), kFirst + 10000);
  EXPECT_EQ(LastSequence(measured), kFirst + 10000 - 1);
  EXPECT_EQ(OperationCallbacks(), kFirst + 10000);
  EXPECT_EQ(Uncompleted(measured), 0u);
  EXPECT_EQ(Ignored(ReadSnapshot()), 0u);
  communicator.Finalize();
  EXPECT_EQ(Operations(communicator.Read()), kFirst + 10000);
}

TEST_WITH_GPU(OperationHandles, AreGivenBetweenNodes) {
  StreamCommunicator communicator(gpu, 1, gpu.CreateContext(0), /*nnodes=*/2);
  EXPECT_TRUE(Operate(communicator, 3 * kFirst));
}

// As long as their ProxyOps have not stopped, operations stand where others begin.
TEST_WITH_GPU(OperationHandles, NameOperationsWhoseProxyOpsCome) {
  constexpr uint64_t kOperations = 20000;
  StreamCommunicator communicator(gpu, 1, gpu.CreateContext(0), /*nnodes=*/2);
  std::deque<void*> proxies;
  for (uint64_t i = 0; i < kOperations; ++i) {
    communicator.Launch(nullptr, 0);
    void* operation = Start(communicator.context(), CollEvent(nullptr, i, 2));
    ASSERT_NE(operation, nullptr);
    Stop(operation);
    proxies.push_back(Start(communicator.context(), ProxyOpEvent(operation, getpid())));
    if (proxies.size() < 100) continue;
    Stop(proxies.front());
    proxies.pop_front();
  }
  for (void* proxy : proxies) Stop(proxy);
  communicator.Finalize();
  const CommunicatorSnapshot measured = communicator.Read();
  EXPECT_EQ(Operations(measured), kOperations);
  EXPECT_EQ(Untimed(measured), kOperations);
  EXPECT_EQ(LastSequence(measured), kOperations - 1);
  EXPECT_EQ(OperationCallbacks(), kOperations);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), kOperations);
  EXPECT_EQ(Ignored(ReadSnapshot()), 0u);
}

// NCCL then reports operations from a host callback, and others where they are launched.
TEST_WITH_GPU(OperationHandles, OfTwoThreadsBesideGraphs) {
  constexpr uint64_t kOperations = 20000;
  StreamCommunicator communicator(gpu, 1, gpu.CreateContext(0), /*nnodes=*/2);
  Operate(communicator, 10);
  Descriptor call = CallEvent("AllReduce", 1024, "ncclFloat32", /*captured=*/true);
  void* captured = Start(communicator.context(), call);
  EXPECT_NE(captured, nullptr);
  Stop(captured);
  const auto report = [&] {
    for (uint64_t i = 0; i < kOperations; ++i) {
      Report(communicator.context(), 10 + i);
    }
  };
  std::thread host_callback(report);
  report();
  host_callback.join();
  communicator.Finalize();
  EXPECT_EQ(Operations(communicator.Read()), 10 + 2 * kOperations);
  EXPECT_EQ(OperationCallbacks(), 10 + 2 * kOperations);
}

// Operations then tell what is in flight.
TEST_IN_CHILD(OperationHandles, AreGivenWhereNoEventsFollowTheLaunches) {
  NcclCommunicator communicator(1);
  void* handle = nullptr;
  for (uint64_t i = 0; i < 3 * kFirst; ++i) handle = communicator.Enqueue();
  EXPECT_NE(handle, nullptr);
}
TEST_WITH_GPU(OperationHandles, ComeBackWhenTheDriverFails) {
  StreamCommunicator communicator(gpu, 1);
  EXPECT_FALSE(Operate(communicator, kFirst + 1));
  gpu.Fail("cuEventRecord", FakeCuda::kDeviceLost);
  EXPECT_TRUE(Operate(communicator, 10, kFirst + 1));
  EXPECT_EQ(Operations(communicator.Read()), kFirst + 11);
}

// Two ranks of a node that neither NVLink nor shared memory connects.
TEST_WITH_GPU(OperationHandles, ComeBackWithTheFirstProxyOp) {
  StreamCommunicator communicator(gpu, 1);
  EXPECT_FALSE(Operate(communicator, kFirst + 1));
  Start(communicator.context(), ProxyOpEvent(nullptr, getpid() + 1));  // another process'
  EXPECT_FALSE(Operate(communicator, 1, kFirst + 1));
  EXPECT_EQ(Start(communicator.context(), ProxyOpEvent(nullptr, getpid())), nullptr);
  EXPECT_TRUE(Operate(communicator, 2 * kFirst, kFirst + 2));
  void* operation = Start(communicator.context(), CollEvent(nullptr, 0, 2));
  void* proxy = Start(communicator.context(), ProxyOpEvent(operation, getpid()));
  EXPECT_NE(proxy, nullptr);
  Stop(operation);
  Stop(proxy);
  communicator.Finalize();
  EXPECT_EQ(Timed(communicator.Read(), LatencyKind::kCompletionProxy), 1u);
}
TEST_WITH_GPU(OperationHandles, StayWhereAnOperationHasAProxyOp) {
  StreamCommunicator communicator(gpu, 1);
  void* operation = Start(communicator.context(), CollEvent(nullptr, 0, 2));
  Stop(operation);
  Start(communicator.context(), ProxyOpEvent(operation, getpid()));
  EXPECT_TRUE(Operate(communicator, 3 * kFirst, 1));
}

// More kinds than there is room for to remember them, in turn; Send and Recv among them.
TEST_WITH_GPU(OperationHandles, OfManyKinds) {
  constexpr uint64_t kRounds = 400;
  StreamCommunicator communicator(gpu, 1);
  communicator.Launch(nullptr, 0);
  for (uint64_t i = 0; i < kRounds; ++i) {
    for (const char* op : kOps) {
      for (const char* proto : kProtocols) Report(communicator.context(), i, op, proto);
    }
    for (const char* op : {"Send", "Recv"}) {
      void* handle = Start(communicator.context(), P2pEvent(op, 0, 1, 2));
      if (handle != nullptr) Stop(handle);
    }
  }
  const CommunicatorSnapshot measured = communicator.Read();
  EXPECT_EQ(measured.algorithms.size(), 15u);
  for (const AlgorithmCountSnapshot& count : measured.algorithms) {
    EXPECT_EQ(count.operations, kRounds) << count.op << ' ' << count.proto;
  }
  for (const SequenceSnapshot& sequence : measured.sequences) {
    EXPECT_EQ(sequence.sequence, kRounds - 1) << sequence.op;
  }
  EXPECT_EQ(Untimed(measured, UntimedReason::kNotSampled), 17 * kRounds);
  EXPECT_EQ(OperationCallbacks(), 17 * kRounds);
}

// Whatever becomes of a launch, its operation has a duration or a reason.
TEST_WITH_GPU(OperationHandles, BesideSampledCapturedAndGroupedOnes) {
  StreamCommunicator communicator(gpu, 1);
  EXPECT_FALSE(Operate(communicator, kFirst + 1));
  TimeEveryCall();
  constexpr uint64_t kRuns = 40;
  for (uint64_t i = 0; i < kRuns; ++i) {
    communicator.Run(kMs);
    gpu.Advance(kMs);
    communicator.RunGroup(kMs, {{"AllReduce", 4096}, {"AllGather", 4096}});
    AdvanceAndPoll(gpu, kMs);
  }
  const CommunicatorSnapshot measured = communicator.Read();
  const uint64_t operations = kFirst + 1 + 3 * kRuns;
  EXPECT_EQ(Operations(measured), operations);
  EXPECT_GT(TimedOperations(measured), kRuns / 2);
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), operations);
  EXPECT_EQ(OperationCallbacks(), operations);
}

// A thread that still reports for a communicator that was aborted, while others have its place.
TEST_WITH_GPU(OperationHandles, OfTheNextCommunicatorInAPlace, {"NCCL_PULSE_SERIES_LIMIT", "64"}) {
  for (uint64_t comm_id = 1; comm_id <= 30; ++comm_id) {
    StreamCommunicator communicator(gpu, comm_id, gpu.CreateContext(0));
    std::atomic<uint64_t> reported{0};
    std::atomic<bool> is_over{false};
    EXPECT_FALSE(Operate(communicator, kFirst + 1));
    std::thread late([&] {
      while (!is_over) {
        Report(communicator.context(), reported);
        ++reported;
      }
    });
    EXPECT_TRUE(WaitUntil([&] { return reported > 100; }));
    communicator.Finalize();
    StreamCommunicator next(gpu, 1000 + comm_id, gpu.CreateContext(0));
    Operate(next, kFirst + comm_id);
    EXPECT_EQ(Operations(next.Read()), kFirst + comm_id);
    is_over = true;
    late.join();
    next.Finalize();
  }
}

}  // namespace
}  // namespace nccl_pulse
