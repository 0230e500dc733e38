// What belongs to another process: with PXN, a proxy thread of this one works for a neighbour, and
// hands over that one's context and parent. Nothing of it may be followed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/tracker/ticket.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

using NameCounts = std::map<std::string, uint64_t>;

// An address that ends the process when it is read.
void* PoisonedPointer() {
  void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(page, MAP_FAILED);
  return page;
}

TEST_WITH_COMM(ForeignTest, ProxyOpOfAnotherProcess) {
  void* poison = PoisonedPointer();
  void* coll = comm.Enqueue();
  const int32_t neighbour = getpid() + 1;
  EXPECT_EQ(Start(poison, ProxyOpEvent(poison, neighbour)), nullptr);
  EXPECT_EQ(Start(nullptr, ProxyOpEvent(nullptr, neighbour)), nullptr);
  // Handles that happen to be ones of ours are not ours either when the process is another.
  EXPECT_EQ(Start(comm.context(), ProxyOpEvent(coll, neighbour)), nullptr);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"foreign_process", 3}}));
  EXPECT_EQ(Uncompleted(Find(snapshot, 1)), 0u);
}

TEST_WITH_COMM(ForeignTest, PoisonedParentOfThisProcess, kKernel) {
  void* poison = PoisonedPointer();
  EXPECT_EQ(Start(comm.context(), ProxyOpEvent(poison, getpid())), nullptr);
  EXPECT_EQ(Start(comm.context(), ChannelEvent(poison, 0, 1)), nullptr);
  EXPECT_NE(Start(comm.context(), CollEvent(poison, 0, 1)), nullptr);
  comm.RunWithKernel(2, 1000, 2000);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"foreign_handle", 2}}));
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationKernel), 1u);
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kInvisible), 1u);
}

TEST_WITH_COMM(ForeignTest, PoisonedContext, kKernel) {
  void* poison = PoisonedPointer();
  void* coll = comm.Enqueue();
  uint64_t expected = 0;
  for (void* context : {poison, static_cast<void*>(nullptr)}) {
    EXPECT_EQ(Start(context, CallEvent("AllReduce", 1, "ncclInt8")), nullptr);
    EXPECT_EQ(Start(context, P2pCallEvent("Send", 1, "ncclInt8")), nullptr);
    EXPECT_EQ(Start(context, LaunchEvent()), nullptr);
    EXPECT_EQ(Start(context, CollEvent(nullptr, 0, 1)), nullptr);
    EXPECT_EQ(Start(context, P2pEvent("Send", 0, 1, 1)), nullptr);
    EXPECT_EQ(Start(context, ProxyOpEvent(coll, getpid())), nullptr);
    EXPECT_EQ(Start(context, ChannelEvent(coll, 0, 1)), nullptr);
    expected += 7;
  }
  EXPECT_EQ(ProfilerOf<abi::v5::Profiler>(5).finalize(poison), abi::kSuccess);
  EXPECT_EQ(ProfilerOf<abi::v5::Profiler>(5).finalize(nullptr), abi::kSuccess);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"foreign_context", expected + 1}}));
  EXPECT_EQ(Operations(Find(snapshot, 1)), 1u);
}

// Children of an operation that was not tracked (timing off, no room) have no parent: that is as it
// should be, and worth no count.
TEST_WITH_COMM(ForeignTest, NoParent, kKernel) {
  EXPECT_EQ(Start(comm.context(), ProxyOpEvent(nullptr, getpid())), nullptr);
  EXPECT_EQ(Start(comm.context(), ChannelEvent(nullptr, 0, 1)), nullptr);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), NameCounts{});
}

TEST_IN_CHILD(ForeignTest, TicketsOfAnotherProcess, kKernel) {
  // A neighbour is this process after a fork, so all but the process in its tickets is alike.
  struct Handles {
    void *context, *coll, *proxy, *channel;
  };
  const auto make = [](Handles* out) {
    NcclCommunicator comm(1);
    out->context = comm.context();
    out->coll = comm.Enqueue();
    out->proxy = Start(comm.context(), ProxyOpEvent(out->coll, getpid()));
    out->channel = Start(comm.context(), ChannelEvent(out->coll, 0, 1));
  };
  // Two neighbours with tags that differ: processes draw theirs out of 8192, and this one's may
  // be one of them.
  constexpr std::size_t kBytes = 2 * sizeof(Handles);
  auto* neighbours = static_cast<Handles*>(
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  do {
    for (int i = 0; i < 2; ++i) {
      const pid_t neighbour = fork();
      if (neighbour == 0) {
        make(&neighbours[i]);
        _exit(0);
      }
      waitpid(neighbour, nullptr, 0);
    }
  } while (neighbours[0].context == neighbours[1].context);
  Handles own;
  make(&own);
  const Handles* shared = own.context == neighbours[0].context ? &neighbours[1] : &neighbours[0];
  EXPECT_EQ(Start(shared->context, CollEvent(nullptr, 0, 1)), nullptr);
  EXPECT_EQ(Start(own.context, ProxyOpEvent(shared->coll, getpid())), nullptr);
  EXPECT_EQ(Start(own.context, ChannelEvent(shared->coll, 0, 1)), nullptr);
  Stop(shared->coll);
  Stop(shared->proxy);
  Record(shared->proxy, abi::kStateProxyOpInProgress);
  RecordAndStopChannel(shared->channel, 2);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()),
            (NameCounts{{"foreign_context", 1}, {"foreign_handle", 7}}));
}

}  // namespace
}  // namespace nccl_pulse
