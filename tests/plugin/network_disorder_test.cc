// Network steps that come late, twice, never, in another order, or without room for them.
#include <gtest/gtest.h>
#include <unistd.h>

#include "metrics/segment_layout.h"
#include "plugin/tracker/step_table.h"
#include "tests/plugin/harness.h"
#include "tests/plugin/network_job.h"

namespace nccl_pulse {
namespace {

// While the ring is full of steps of open operations, new steps replace each other in the reserve.
// Events of a replaced step are known as stale.
TEST_WITH_COMM(NetworkTest, StepsReplaceEachOtherWhenAllPlacesAreInUse, kAlways) {
  void* proxy = StartProxyOp(comm, comm.Enqueue());
  std::vector<void*> steps;
  for (uint32_t i = 0; i <= StepTable::kRing; ++i) steps.push_back(StartStep(comm, proxy));
  for (uint32_t i = 0; i < StepTable::kReserve; ++i) EXPECT_NE(StartStep(comm, proxy), nullptr);
  RunSend(comm, proxy, 3);
  for (void* step : steps) {
    RecordStep(step, abi::kStateProxyStepSendGpuWait, 0);
    Stop(step);
  }
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{3, 0}));
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"stale_handle", 2}}));
}

// The steps of a connection wait for long, for a late rank say, while others come and go by the
// thousand: the waits that one looks for must not be lost.
TEST_IN_CHILD(NetworkTest, LongWaitKeepsItsPlace, kAlways) {
  NcclCommunicator waiting(1);
  NcclCommunicator busy(2);
  void* late = StartProxyOp(waiting, waiting.Enqueue());
  std::vector<void*> steps;
  for (int i = 0; i < 8; ++i) {
    steps.push_back(StartStep(waiting, late));
    RecordStep(steps.back(), abi::kStateProxyStepRecvWait, 0);
  }
  void* proxy = StartProxyOp(busy, busy.Enqueue());
  for (uint32_t i = 0; i < 3 * StepTable::kSlots; ++i) RunReceive(busy, proxy, 1);
  for (void* step : steps) {
    RecordStep(step, abi::kStateProxyStepRecvFlushWait, 100);
    RecordStep(step, abi::kStateProxyStepRecvGpuWait, 0);
    Stop(step);
  }
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 800}));
  EXPECT_EQ(Find(snapshot, 2).network_bytes, (Directions{0, 3 * StepTable::kSlots}));
  EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
}

// A step that nobody stopped is passed over no longer than its operation lasts: or all places would
// be such ones in the end, and steps that wait would be taken for new ones.
TEST_WITH_COMM(NetworkTest, LeftStepsEndWithTheirOperation, kAlways) {
  void* proxy = StartProxyOp(comm, comm.Enqueue());
  for (uint32_t i = 0; i < StepTable::kSlots; ++i) StartStep(comm, proxy);
  RunReceive(comm, proxy, 3);
  Stop(proxy);
  EXPECT_TRUE(
      WaitUntil([] { return Timed(Find(ReadSnapshot(), 1), LatencyKind::kDurationNetwork) == 1; }));

  proxy = StartProxyOp(comm, comm.Enqueue());
  void* step = StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepRecvWait, 0);
  for (uint32_t i = 1; i < StepTable::kSlots; ++i) StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepRecvFlushWait, 5);
  Stop(step);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 8}));
  EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
}

TEST_WITH_COMM(NetworkTest, MissingArguments, kAlways) {
  void* proxy = StartProxyOp(comm, comm.Enqueue());
  Timeline line;
  void* step = StartStep(comm, proxy);
  Record(step, abi::kStateProxyStepSendGpuWait);
  Record(step, abi::kStateProxyStepSendPeerWait);
  line.Make([&] { Record(step, abi::kStateProxyStepSendWait); });
  line.Make([&] { Stop(step); });
  step = StartStep(comm, proxy);
  Record(step, abi::kStateProxyStepRecvWait);
  Record(step, abi::kStateProxyStepRecvFlushWait);
  Stop(step);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 0}));
  line.ExpectWithin(Wait(Find(snapshot, 1), NetworkWait::kSendWire), 0, 1, "wire");
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"missing_argument", 2}}));
}

TEST_WITH_COMM(NetworkTest, StatesInAnotherOrder, kAlways) {
  void* proxy = StartProxyOp(comm, comm.Enqueue());
  void* step = StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepSendWait, 10);
  RecordStep(step, abi::kStateProxyStepSendGpuWait, 20);    // back
  RecordStep(step, abi::kStateProxyStepRecvFlushWait, 30);  // the other direction
  RecordStep(step, abi::kStateProxyOpInProgress, 40);       // of another kind: says nothing
  Stop(step);
  Stop(StartStep(comm, proxy));  // without any
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{10, 0}));
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"unknown_state", 2}}));
}

TEST_WITH_COMM(NetworkTest, StoppedTwice, kAlways) {
  void* step = StartStep(comm, StartProxyOp(comm, comm.Enqueue()));
  RecordStep(step, abi::kStateProxyStepSendWait, 10);
  Stop(step);
  Stop(step);
  RecordStep(step, abi::kStateProxyStepSendWait, 10);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{10, 0}));
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"repeated_stop", 2}}));
}

TEST_WITH_COMM(NetworkTest, AfterFinalize, kAlways) {
  void* proxy = StartProxyOp(comm, comm.Enqueue());
  void* step = StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepSendGpuWait, 0);
  comm.Finalize();
  RecordStep(step, abi::kStateProxyStepSendWait, 99);
  Stop(step);
  EXPECT_EQ(StartStep(comm, proxy), nullptr);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 0}));
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"after_close", 2}}));
}

// A place that is used again belongs to the next communicator, with what comes late of the last
// one.
TEST_IN_CHILD(NetworkTest, NextCommunicatorStartsAtZero, kAlways) {
  void* late = nullptr;
  {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    RunSend(comm, proxy, 11);
    late = StartStep(comm, proxy);
    RecordStep(late, abi::kStateProxyStepSendWait, 99);
    comm.Finalize();
  }
  EXPECT_EQ(Find(ReadSnapshot(), 1).network_bytes, (Directions{11, 0}));
  for (uint64_t id = 2; id <= kMaxCommunicators + 1; ++id) {
    NcclCommunicator next(id);
    if (id == kMaxCommunicators + 1) Stop(late);
    next.Finalize();
  }
  const ProcessSnapshot snapshot = ReadSnapshot();
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    EXPECT_NE(communicator.comm_id, 1u);
    EXPECT_EQ(communicator.network_bytes, (Directions{0, 0})) << communicator.comm_id;
  }
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"after_close", 1}}));
}

// With PXN the ProxyOp is another process', it has no handle here, and its steps come without
// parent and with a context that must not be touched.
TEST_WITH_COMM(NetworkTest, OfAnotherProcess, kAlways) {
  void* coll = comm.Enqueue();
  void* proxy = Start(&comm, ProxyOpEvent(coll, getpid() + 1));
  EXPECT_EQ(proxy, nullptr);
  EXPECT_EQ(Start(&comm, StepEvent(proxy)), nullptr);
  EXPECT_EQ(Start(&comm, StepEvent(&comm)), nullptr);
  EXPECT_EQ(Start(&comm, StepEvent(coll)), nullptr);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(IgnoredByName(snapshot),
            (NameCounts{{"foreign_process", 1}, {"unfollowed_step", 1}, {"foreign_handle", 2}}));
}

TEST(NetworkTest, NotAskedFor) {
  for (const Environment& environment :
       {Environment{{"NCCL_PULSE_NETWORK_WINDOW", "off"}}, Environment{}}) {
    RunInChild(environment, [] {
      NcclCommunicator comm(1);
      EXPECT_FALSE(IsOn());
      void* proxy = StartProxyOp(comm, comm.Enqueue());
      EXPECT_EQ(StartStep(comm, proxy), nullptr);
      const ProcessSnapshot snapshot = ReadSnapshot();
      EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"unrequested_type", 1}}));
      EXPECT_EQ(snapshot.network_observed_ns, 0u);
    });
  }
}

}  // namespace
}  // namespace nccl_pulse
