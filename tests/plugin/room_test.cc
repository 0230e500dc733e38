// Memory and series where a job has many communicators: what live ones need is there, finalized
// ones give way, and what those counted is not lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

// Four operations in four sizes.
constexpr int kKinds = 16;
struct Kind {
  const char* op;
  uint64_t bytes;
};
Kind KindOf(int number) {
  static const char* const kOps[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast"};
  return {kOps[number % 4], uint64_t{4096} << (2 * (number / 4))};
}

void CallOnly(void* context, const Kind& kind) {
  void* call = Start(context, CallEvent(kind.op, kind.bytes, "ncclInt8"));
  if (call != nullptr) Stop(call);
}

// One operation, whose end the network proxy tells.
void RunOne(void* context, const Kind& kind) {
  void* call = Start(context, CallEvent(kind.op, kind.bytes, "ncclInt8"));
  if (call != nullptr) Stop(call);
  void* launch = Start(context, LaunchEvent());
  if (launch != nullptr) Stop(launch);
  Descriptor event = CollEvent(call, 0, 2);
  event.coll.func = kind.op;
  event.coll.count = kind.bytes;
  event.coll.datatype = "ncclInt8";
  void* coll = Start(context, event);
  if (coll != nullptr) Stop(coll);
  Stop(Start(context, ProxyOpEvent(coll, getpid())));
}

uint64_t CallsInOverflow(const CommunicatorSnapshot& communicator) {
  uint64_t calls = 0;
  for (const CallCountSnapshot& series : communicator.calls) {
    if (series.op == "overflow") calls += series.calls;
  }
  return calls;
}

uint64_t RecycledCalls(const ProcessSnapshot& snapshot) {
  uint64_t calls = 0;
  for (const RecycledCallsSnapshot& recycled : snapshot.recycled_calls) calls += recycled.calls;
  return calls;
}

// Returns the communicators 1 to `count`, each of which has run every kind.
std::vector<std::unique_ptr<NcclCommunicator>> RunEveryKindOn(uint64_t count) {
  std::vector<std::unique_ptr<NcclCommunicator>> communicators;
  for (uint64_t id = 1; id <= count; ++id) {
    communicators.push_back(std::make_unique<NcclCommunicator>(id));
  }
  for (const auto& communicator : communicators) {
    for (int i = 0; i < kKinds; ++i) RunOne(communicator->context(), KindOf(i));
  }
  return communicators;
}

// All of them are settled by one look of the background thread: 128 histograms.
TEST_IN_CHILD(RoomTest, EveryKindOfEightCommunicatorsSettlesAtOnce) {
  constexpr uint64_t kCommunicators = 8;
  const auto communicators = RunEveryKindOn(kCommunicators);
  const auto settled = [&] {
    const ProcessSnapshot snapshot = ReadSnapshot();
    uint64_t measured = 0;
    for (uint64_t id = 1; id <= kCommunicators; ++id) {
      const CommunicatorSnapshot& communicator = Find(snapshot, id);
      measured +=
          Timed(communicator, LatencyKind::kCompletionProxy) + communicator.overflowed_operations;
    }
    return measured >= kCommunicators * kKinds;
  };
  ASSERT_TRUE(WaitUntil(settled));
  const ProcessSnapshot snapshot = ReadSnapshot();
  for (uint64_t id = 1; id <= kCommunicators; ++id) {
    const CommunicatorSnapshot& communicator = Find(snapshot, id);
    EXPECT_EQ(communicator.overflowed_operations, 0u);
    EXPECT_EQ(communicator.overflowed_calls, 0u);
    EXPECT_EQ(communicator.latencies.size(), size_t{kKinds});
  }
}

// And by finalize, without the background thread.
TEST_IN_CHILD(RoomTest, EveryKindSettlesAtTheEnd) {
  constexpr uint64_t kCommunicators = 24;
  const auto communicators = RunEveryKindOn(kCommunicators);
  for (const auto& communicator : communicators) communicator->Finalize();
  const ProcessSnapshot snapshot = ReadSnapshot();
  for (uint64_t id = 1; id <= kCommunicators; ++id) {
    EXPECT_EQ(Find(snapshot, id).overflowed_operations, 0u) << id;
    EXPECT_EQ(Find(snapshot, id).latencies.size(), size_t{kKinds}) << id;
  }
}

TEST_IN_CHILD(RoomTest, FinalizedCommunicatorsGiveWayToLiveOnes) {
  constexpr uint64_t kCommunicators = 400;
  constexpr int kCalled = 8;
  NcclCommunicator first(1000);
  for (int i = 0; i < kCalled; ++i) RunOne(first.context(), KindOf(i));
  std::atomic<bool> stop{false};
  std::thread watch([&] {
    while (!stop) {
      const ProcessSnapshot snapshot = ReadSnapshot();
      EXPECT_LE(snapshot.series_used, snapshot.series_limit);
    }
  });
  for (uint64_t id = 1; id <= kCommunicators; ++id) {
    NcclCommunicator comm(id);
    for (int i = 0; i < kCalled; ++i) RunOne(comm.context(), KindOf(i));
    comm.Finalize();
  }
  stop = true;
  watch.join();
  NcclCommunicator next(2000);
  for (int i = 0; i < kCalled; ++i) RunOne(next.context(), KindOf(i));
  next.Finalize();
  const ProcessSnapshot snapshot = first.FinalizeAndRead();
  EXPECT_LE(snapshot.series_used, snapshot.series_limit);
  uint64_t shown = 0;
  uint64_t oldest = 2000;
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    EXPECT_EQ(communicator.overflowed_operations, 0u) << communicator.comm_id;
    EXPECT_EQ(CallsInOverflow(communicator), 0u) << communicator.comm_id;
    EXPECT_EQ(Calls(communicator), uint64_t{kCalled}) << communicator.comm_id;
    shown += Calls(communicator);
    oldest = std::min(oldest, communicator.comm_id);
  }
  EXPECT_EQ(Calls(Find(snapshot, 1000)), uint64_t{kCalled}) << "a live one gives nothing up";
  EXPECT_EQ(Calls(Find(snapshot, 2000)), uint64_t{kCalled});
  // The oldest first: those that are left are the newest, without a gap.
  EXPECT_GT(oldest, 1u);
  for (uint64_t id = oldest; id <= kCommunicators; ++id) Find(snapshot, id);
  // Nothing is lost to the totals.
  EXPECT_EQ(shown + RecycledCalls(snapshot), (kCommunicators + 2) * kCalled);
  EXPECT_EQ(snapshot.recycled_communicators, oldest - 1);
  for (const RecycledCallsSnapshot& recycled : snapshot.recycled_calls) {
    const uint64_t of_each = recycled.calls / 2;
    EXPECT_EQ(recycled.bytes, of_each * (4096 + 16384)) << recycled.op;
  }
  EXPECT_EQ(Ignored(snapshot), 0u);
}

// Without a further init or finalize: a live communicator calls more and more kinds.
TEST_IN_CHILD(RoomTest, FinalizedCommunicatorsGiveWayToFurtherKinds,
              {"NCCL_PULSE_SERIES_LIMIT", "64"}) {
  NcclCommunicator live(1);
  std::vector<std::unique_ptr<NcclCommunicator>> ended;
  for (uint64_t id = 2; id <= 6; ++id) {
    ended.push_back(std::make_unique<NcclCommunicator>(id));
    // The last of them takes all that there is.
    for (int i = 0; i < (id < 6 ? 10 : kKinds); ++i) {
      CallOnly(ended.back()->context(), KindOf(i));
    }
  }
  for (const auto& communicator : ended) communicator->Finalize();
  // All kinds get series of their own in time: those that came too early did not lose theirs.
  ASSERT_TRUE(WaitUntil([&] {
    for (int i = 0; i < kKinds; ++i) CallOnly(live.context(), KindOf(i));
    usleep(1000);
    const ProcessSnapshot snapshot = ReadSnapshot();
    size_t with_own = 0;
    for (const CallCountSnapshot& series : Find(snapshot, 1).calls) {
      if (series.op != "overflow") ++with_own;
    }
    return with_own == size_t{kKinds};
  }));
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_LE(snapshot.series_used, snapshot.series_limit);
  EXPECT_GT(snapshot.recycled_communicators, 0u);
  uint64_t shown = 0;
  for (uint64_t id = 2; id <= 6; ++id) {
    for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
      if (communicator.comm_id == id) shown += Calls(communicator);
    }
  }
  EXPECT_EQ(shown + RecycledCalls(snapshot), 40u + kKinds);
}

}  // namespace
}  // namespace nccl_pulse
