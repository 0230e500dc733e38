// In the steady state, no callback allocates, locks or makes a system call: counted over more than
// a million collectives.
//
// HOW. Two nets, one over the other:
//
//   1. This program defines malloc and its family, mmap, madvise, pthread_mutex_lock, the condition
//      variables and syscall() itself; the library's calls are bound to these definitions (it also
//      has the C++ library inside, whose operator new calls malloc). Each counts, for the calling
//      thread, and passes the call on.
//   2. A seccomp filter on the measuring thread, installed after the warm-up, in which every system
//      call but a handful traps. The handler says which one it was and ends the process.
//      Filters are of one thread: the plugin's background thread goes on as always.
//
// Both nets are tried first: a test that something is zero must be able to see one.
//
// In a sanitizer's build nothing is measured: its run-time library has malloc for itself.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <thread>

#include "bench/nccl_calls.h"
#include "tests/plugin/harness.h"
#include "tests/plugin/hot_path_nets.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace nccl_pulse {
namespace {

constexpr uint64_t kCollectives = 1 << 20;

// What stands where EXPECT stands elsewhere: under a filter there is no way back to gtest.
[[noreturn]] void EndUnderFilter(bool good, const char* otherwise) {
  if (!good) {
    size_t length = 0;
    while (otherwise[length] != '\0') ++length;
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, otherwise, length);
  }
  _exit(good ? 0 : 1);
}

// All callbacks of an eager collective with traffic: call, launch, Coll, two ProxyOps.
void RunEager(NcclCommunicator& comm) {
  void* coll = comm.Enqueue();
  void* first = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  void* second = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  Record(first, abi::kStateProxyOpInProgress);
  Stop(first);
  Stop(second);
}

// The same with two steps for each ProxyOp, as they come while steps are watched.
void RunWatched(NcclCommunicator& comm) {
  void* coll = comm.Enqueue();
  void* sending = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  void* receiving = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  for (int i = 0; i < 2; ++i) {
    void* send = Start(comm.context(), StepEvent(sending, i));
    void* receive = Start(comm.context(), StepEvent(receiving, i));
    RecordStep(send, abi::kStateProxyStepSendGpuWait, 0);
    RecordStep(receive, abi::kStateProxyStepRecvWait, 0);
    for (int poll = 0; poll < 3; ++poll) RecordStep(send, abi::kStateProxyStepSendPeerWait, 0);
    RecordStep(send, abi::kStateProxyStepSendWait, 4096);
    RecordStep(receive, abi::kStateProxyStepRecvFlushWait, 4096);
    RecordStep(receive, abi::kStateProxyStepRecvGpuWait, 0);
    Stop(send);
    Stop(receive);
  }
  Stop(sending);
  Stop(receiving);
}

// The same with GPU times of four channels and no traffic.
void RunTimed(NcclCommunicator& comm, uint64_t number) {
  constexpr uint8_t kChannels = 4;
  void* coll = comm.Enqueue(kChannels);
  void* handles[kChannels];
  for (uint8_t i = 0; i < kChannels; ++i) {
    handles[i] = Start(comm.context(), ChannelEvent(coll, i, 1000 * number + 1));
  }
  for (void* handle : handles) RecordAndStopChannel(handle, 1000 * number + 500);
}

TEST(HotPathTest, NetsCatchWhatTheyShould) {
  RunInChild({}, [] {
    const Counts before = CountsOfThisThread();
    NcclCommunicator comm(1);  // init allocates, maps and locks, from within the library
    EXPECT_GT(CountsOfThisThread().allocations, before.allocations);
    EXPECT_GT(CountsOfThisThread().mappings, before.mappings);
    EXPECT_GT(CountsOfThisThread().locks, before.locks);
    EXPECT_GT(CountsOfThisThread().calls, before.calls);
  });
  const pid_t child = fork();
  if (child == 0) {
    if (!TrapSystemCalls({})) _exit(77);
    getppid();
    _exit(0);
  }
  int status = 0;
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED), 0);
  status = info.si_status;
  if (status == 77) GTEST_SKIP() << "seccomp filters are not permitted here";
  EXPECT_EQ(status, kTrappedStatus);
}

// getpid is a system call of this test: asked once.
TEST_WITH_COMM(HotPathTest, EagerCollectivesOnOneThread) {
  for (int i = 0; i < 2000; ++i) RunEager(comm);
  if (!TrapSystemCalls({SYS_getpid})) SkipScenario("seccomp filters are not permitted here");
  const Counts before = CountsOfThisThread();
  for (uint64_t i = 0; i < kCollectives; ++i) RunEager(comm);
  EndUnderFilter(CountsOfThisThread().Sum() == before.Sum(), "a callback allocated or locked\n");
}

TEST_WITH_COMM(HotPathTest, WatchedNetworkSteps, {"NCCL_PULSE_NETWORK_WINDOW", "100"}) {
  for (int i = 0; i < 2000; ++i) RunWatched(comm);
  if (!TrapSystemCalls({SYS_getpid})) SkipScenario("seccomp filters are not permitted here");
  const Counts before = CountsOfThisThread();
  for (uint64_t i = 0; i < kCollectives / 4; ++i) {
    RunWatched(comm);
    // What is refused must not block either.
    Stop(Start(comm.context(), StepEvent(nullptr)));
    RecordStep(&comm, abi::kStateProxyStepSendWait, 1);
  }
  EndUnderFilter(CountsOfThisThread().Sum() == before.Sum(), "a callback allocated or locked\n");
}

TEST_WITH_COMM(HotPathTest, TimedCollectivesOnOneThread, kKernel) {
  uint64_t number = 0;
  for (int i = 0; i < 2000; ++i) RunTimed(comm, ++number);
  if (!TrapSystemCalls({SYS_getpid})) SkipScenario("seccomp filters are not permitted here");
  const Counts before = CountsOfThisThread();
  for (uint64_t i = 0; i < kCollectives; ++i) RunTimed(comm, ++number);
  EndUnderFilter(CountsOfThisThread().Sum() == before.Sum(), "a callback allocated or locked\n");
}

// A million collectives whose launches CUDA events follow, and then a million whose launches NCCL's
// counter follows: gates, markers and timed launches among them.
template <typename Calls>
void RunOverADriver(Calls& nccl) {
  void* const context = nccl.Init(1);
  for (int i = 0; i < 2000; ++i) nccl.EagerCollective(context, static_cast<uint64_t>(i), 2);
  if (!TrapSystemCalls({})) SkipScenario("seccomp filters are not permitted here");
  const Counts before = CountsOfThisThread();
  for (uint64_t i = 0; i < kCollectives; ++i) nccl.EagerCollective(context, 2000 + i, 2);
  EndUnderFilter(CountsOfThisThread().Sum() == before.Sum(), "a callback allocated or locked\n");
}

TEST_IN_CHILD(HotPathTest, LaunchesFollowedByEvents) {
  bench::OpenDriver(bench::CountedCalls::kDriver);
  bench::NcclCalls<bench::ApiV5> nccl(bench::FindLibrary(kLibrary));
  RunOverADriver(nccl);
}

TEST_IN_CHILD(HotPathTest, LaunchesFollowedByTheCounter) {
  bench::OpenDriver(bench::CountedCalls::kDriver);
  bench::CountedCalls nccl(bench::FindLibrary(kLibrary));
  RunOverADriver(nccl);
}

// What is rare must not block either.
TEST_WITH_COMM(HotPathTest, RefusedEvents, kKernel) {
  NcclCommunicator gone(2);
  void* stale = comm.Enqueue();
  for (int i = 0; i < 2000; ++i) RunTimed(comm, static_cast<uint64_t>(i) + 1);
  gone.Finalize();
  if (!TrapSystemCalls({SYS_getpid})) SkipScenario("seccomp filters are not permitted here");
  const Counts before = CountsOfThisThread();
  for (int i = 0; i < 100000; ++i) {
    Stop(nullptr);
    Stop(stale);
    Record(stale, 1000);
    Start(gone.context(), CollEvent(nullptr, 0, 1));
    Start(&comm, ProxyOpEvent(stale, getpid()));
    Start(comm.context(), ProxyOpEvent(&comm, -1));
    Start(comm.context(), ChannelEvent(stale, 255, 1));
    Descriptor event{};
    event.type = 1u << 20;
    Start(comm.context(), event);
  }
  EndUnderFilter(CountsOfThisThread().Sum() == before.Sum(), "a callback allocated or locked\n");
}

struct Group {
  NcclCommunicator* comm;
  uint64_t number;
  uint64_t counted;
  bool permitted;
};
constexpr int kPerGroup = 8;

void* RunGroup(void* argument) {
  Group& group = *static_cast<Group*>(argument);
  group.permitted = TrapSystemCalls({SYS_getpid, SYS_exit, SYS_madvise, SYS_munmap, SYS_futex,
                                     SYS_rt_sigprocmask, SYS_set_robust_list, SYS_rseq});
  const Counts before = CountsOfThisThread();
  for (int i = 0; i < kPerGroup; ++i) {
    RunTimed(*group.comm, ++group.number);
    RunEager(*group.comm);
  }
  group.counted += CountsOfThisThread().Sum() - before.Sum();
  return nullptr;
}

// A thread that lives for one group: its first callbacks are its steady state. What the thread
// needs to end is allowed; what the plugin could do with it is in the other net.
TEST_WITH_COMM(HotPathTest, FreshThreadForEveryGroup, kKernel) {
  Group group{&comm, 0, 0, true};
  for (int i = 0; i < 2000; ++i) RunTimed(comm, ++group.number);
  constexpr int kThreads = 2000;
  for (int i = 0; i < kThreads && group.permitted; ++i) {
    // std::thread would free, in the new thread, what it was handed.
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, RunGroup, &group), 0);
    ASSERT_EQ(pthread_join(thread, nullptr), 0);
  }
  if (!group.permitted) SkipScenario("seccomp filters are not permitted here");
  EXPECT_EQ(group.counted, 0u);
  comm.Finalize();
  EXPECT_EQ(Operations(Find(ReadSnapshot(), 1)), 2000u + 2 * kThreads * kPerGroup);
}

// The same without filters and with a million: thread-local counters alone.
TEST_WITH_COMM(HotPathTest, MillionCollectivesOnFreshThreads) {
  for (int i = 0; i < 2000; ++i) RunEager(comm);
  constexpr uint64_t kPerGroup = 256;
  uint64_t counted = 0;
  for (uint64_t i = 0; i < kCollectives / kPerGroup; ++i) {
    std::thread([&] {
      const Counts before = CountsOfThisThread();
      for (uint64_t j = 0; j < kPerGroup; ++j) RunEager(comm);
      counted += CountsOfThisThread().Sum() - before.Sum();
    }).join();
  }
  EXPECT_EQ(counted, 0u);
  comm.Finalize();
  EXPECT_EQ(Calls(Find(ReadSnapshot(), 1)), 2000 + kCollectives);
  EXPECT_EQ(Timed(Find(ReadSnapshot(), 1), LatencyKind::kCompletionProxy), 2000 + kCollectives);
}

}  // namespace
}  // namespace nccl_pulse

#else

TEST(HotPathTest, NotInThisBuild) { GTEST_SKIP() << "the sanitizer has malloc for itself"; }

#endif
