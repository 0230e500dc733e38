// Everything at once, for ThreadSanitizer above all: launching threads, progress threads, a reader,
// communicators that come and go.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "metrics/segment_layout.h"
#include "tests/plugin/harness.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kOperations = kThreadSanitized ? 3000 : 30000;

// Hands Coll handles from a launching to a progress thread, as NCCL's proxy does, in a ring.
class Mailbox {
 public:
  void Push(void* handle) {
    while (pushed_ - popped_.load(std::memory_order_acquire) == kPlaces) std::this_thread::yield();
    ring_[pushed_++ % kPlaces].store(handle, std::memory_order_release);
  }
  void* Pop() {
    std::atomic<void*>& place = ring_[popped_.load(std::memory_order_relaxed) % kPlaces];
    void* handle;
    while ((handle = place.exchange(nullptr, std::memory_order_acquire)) == nullptr) {
      std::this_thread::yield();
    }
    popped_.fetch_add(1, std::memory_order_release);
    return handle;
  }

 private:
  static constexpr uint64_t kPlaces = 64;
  uint64_t pushed_ = 0;
  std::atomic<uint64_t> popped_{0};
  std::atomic<void*> ring_[kPlaces]{};
};

void RunCommunicator(uint64_t comm_id) {
  NcclCommunicator comm(comm_id);
  Mailbox mailbox;
  std::thread progress([&] {
    for (uint64_t i = 1; i <= kOperations; ++i) {
      void* coll = mailbox.Pop();
      if (i % 3 != 0) {
        void* first = Start(comm.context(), ProxyOpEvent(coll, getpid()));
        void* second = Start(comm.context(), ProxyOpEvent(coll, getpid()));
        Record(first, abi::kStateProxyOpInProgress);
        Stop(second);
        Stop(first);
      }
      void* channels[2];
      for (uint8_t channel = 0; channel < 2; ++channel) {
        channels[channel] = Start(comm.context(), ChannelEvent(coll, channel, 1000 * i));
      }
      for (void* channel : channels) RecordAndStopChannel(channel, 1000 * i + 500);
    }
  });
  for (uint64_t i = 0; i < kOperations; ++i) mailbox.Push(comm.Enqueue(2));
  progress.join();
  comm.Finalize();
  // Late ones, as of a proxy that several communicators share.
  EXPECT_EQ(Start(comm.context(), CollEvent(nullptr, 0, 1)), nullptr);
}

TEST_IN_CHILD(StressTest, EverythingAtOnce, {"NCCL_PULSE_TIMING", "kernel"}) {
  constexpr uint64_t kCommunicators = 2;
  constexpr uint64_t kPassing = kThreadSanitized ? 200 : 1500;
  std::atomic<bool> end{false};
  NcclCommunicator shared(100);
  std::thread reader([&] {
    uint64_t calls = 0;
    while (!end) {
      const ProcessSnapshot snapshot = ReadSnapshot();
      const uint64_t now = Calls(Find(snapshot, 100));
      EXPECT_GE(now, calls);
      calls = now;
    }
  });
  std::thread host_callbacks([&] {  // CUDA's thread for graphs, on a communicator in use
    for (uint64_t i = 0; i < kOperations; ++i) shared.RunWithProxy();
  });
  std::thread passing([&] {  // more than there are places, so that some are used again
    for (uint64_t i = 0; i < kPassing; ++i) {
      NcclCommunicator comm(1000 + i);
      comm.RunWithProxy();
      Start(comm.context(), ProxyOpEvent(comm.Enqueue(), getpid()));
      comm.Finalize();
    }
  });
  std::vector<std::thread> launching;
  for (uint64_t id = 1; id <= kCommunicators; ++id) launching.emplace_back(RunCommunicator, id);
  for (std::thread& thread : launching) thread.join();
  host_callbacks.join();
  passing.join();
  // The reader still reads: what it sees now is what was counted.
  shared.Finalize();
  end = true;
  reader.join();

  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Operations(Find(snapshot, 100)), kOperations);
  EXPECT_EQ(Timed(Find(snapshot, 100), LatencyKind::kCompletionProxy), kOperations);
  EXPECT_EQ(Ignored(snapshot, IgnoredReason::kStaleContext), kCommunicators);
  EXPECT_EQ(Ignored(snapshot, IgnoredReason::kNoRoom), 0u);
  if (kPassing + kCommunicators < kMaxCommunicators) {
    for (uint64_t id = 1; id <= kCommunicators; ++id) {
      const CommunicatorSnapshot& measured = Find(snapshot, id);
      EXPECT_EQ(Operations(measured), kOperations);
      EXPECT_EQ(Timed(measured, LatencyKind::kDurationKernel) + Untimed(measured), kOperations);
      EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy) +
                    Timed(measured, LatencyKind::kCompletionKernel) + Uncompleted(measured),
                kOperations);
    }
  }
}

// Watched and unwatched in turn, on several progress threads, while a reader looks.
TEST_IN_CHILD(StressTest, NetworkSteps, {"NCCL_PULSE_NETWORK_WINDOW", "50"}) {
  constexpr uint64_t kCommunicators = 3;
  constexpr uint64_t kStepsOfAProxyOp = 4;
  constexpr uint64_t kBytes = 10;
  constexpr int kStepBit = static_cast<int>(abi::kEventProxyStep);
  std::atomic<uint64_t> watched[kCommunicators]{};
  std::atomic<uint64_t> watched_operations[kCommunicators]{};
  std::atomic<bool> end{false};
  NcclCommunicator first(100);  // there is something to read
  std::thread reader([&] {
    while (!end) ReadSnapshot();
  });
  const auto run = [&](uint64_t number) {
    NcclCommunicator comm(number + 1);
    // It goes on until enough were watched, however long the machine takes for the windows.
    for (uint64_t i = 0; i < kOperations || watched[number] < 1000; ++i) {
      const bool on = (NcclCommunicator::event_mask() & kStepBit) != 0;
      void* proxy = Start(comm.context(), ProxyOpEvent(comm.Enqueue(), getpid()));
      for (uint64_t j = 0; on && j < kStepsOfAProxyOp; ++j) {
        void* step = Start(comm.context(), StepEvent(proxy));
        RecordStep(step, abi::kStateProxyStepRecvWait, 0);
        RecordStep(step, abi::kStateProxyStepRecvFlushWait, kBytes);
        RecordStep(step, abi::kStateProxyStepRecvGpuWait, 0);
        Stop(step);
      }
      Stop(proxy);
      if (on) {
        watched[number] += kStepsOfAProxyOp;
        ++watched_operations[number];
      }
    }
    comm.Finalize();
  };
  std::vector<std::thread> threads;
  for (uint64_t number = 0; number < kCommunicators; ++number) threads.emplace_back(run, number);
  for (std::thread& thread : threads) thread.join();
  end = true;
  reader.join();
  const ProcessSnapshot snapshot = ReadSnapshot();
  std::map<std::string, uint64_t> ignored = IgnoredByName(snapshot);
  // A thread that was off the CPU while the others went through all places has lost its step, and
  // each event of it was counted.
  const uint64_t lost = ignored["stale_handle"];
  // Its place may also be one that it is just claiming: then the other one's step is refused, and
  // the four events behind it have no handle.
  const uint64_t refused = ignored["no_room"];
  ignored.try_emplace("null_handle", 0);
  uint64_t missing = 0;
  for (uint64_t number = 0; number < kCommunicators; ++number) {
    const CommunicatorSnapshot& measured = Find(snapshot, number + 1);
    ASSERT_LE(measured.network_bytes[1], watched[number] * kBytes);
    missing += watched[number] - measured.network_bytes[1] / kBytes;
    const uint64_t timed = Timed(measured, LatencyKind::kDurationNetwork);
    EXPECT_LE(timed, watched_operations[number]);
    EXPECT_GE(timed + lost + refused, watched_operations[number]);
  }
  EXPECT_LE(missing, lost + refused);
  EXPECT_EQ(ignored,
            (std::map<std::string, uint64_t>{
                {"stale_handle", lost}, {"no_room", refused}, {"null_handle", 4 * refused}}));
}

// Steps of one ring of places on more threads than one, each place used again all the time.
TEST_WITH_COMM(StressTest, StepsOfOneOperationOnSeveralThreads,
               {"NCCL_PULSE_NETWORK_WINDOW", "100"}) {
  void* coll = comm.Enqueue();
  constexpr uint64_t kThreads = 3;
  Threads(kThreads, [&](uint64_t) {
    void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
    for (uint64_t i = 0; i < kOperations; ++i) {
      Start(comm.context(), StepEvent(proxy));  // never stopped
      void* step = Start(comm.context(), StepEvent(proxy));
      RecordStep(step, abi::kStateProxyStepSendGpuWait, 0);
      RecordStep(step, abi::kStateProxyStepSendPeerWait, 0);
      RecordStep(step, abi::kStateProxyStepSendWait, 1);
      Stop(step);
    }
    Stop(proxy);
  }).Join();
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  // A thread that was off the CPU for a whole ring has lost its step, and that was counted.
  EXPECT_LE(measured.network_bytes[0], kThreads * kOperations);
  EXPECT_GE(measured.network_bytes[0] + Ignored(snapshot), kThreads * kOperations);
  EXPECT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 1u);
}

// Several proxies of one process work for one operation (PXN with several GPUs in a process).
TEST_WITH_COMM(StressTest, ProxyOpsOfOneOperationOnTwoThreads) {
  std::atomic<uint64_t> round{0};
  std::atomic<void*> coll{nullptr};
  std::atomic<uint64_t> done{0};
  Threads proxies(2, [&](int) {
    for (uint64_t i = 1; i <= kOperations; ++i) {
      while (round.load() < i) std::this_thread::yield();
      for (int j = 0; j < 3; ++j) Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
      done.fetch_add(1);
    }
  });
  for (uint64_t i = 1; i <= kOperations; ++i) {
    coll = comm.Enqueue();
    round = i;
    while (done.load() < 2 * i) std::this_thread::yield();
  }
  proxies.Join();
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  const CommunicatorSnapshot& measured = Find(snapshot, 1);
  EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), kOperations);
  EXPECT_EQ(Ignored(snapshot), 0u);
}

}  // namespace
}  // namespace nccl_pulse
