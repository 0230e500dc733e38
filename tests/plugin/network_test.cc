// Network steps: what they moved, where they waited, and when NCCL is asked for them at all.
//
// Times are checked without a limit of their own: a wait is at least what passed between the two
// callbacks that bound it, and at most what passed from before the first to after the second.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "metrics/segment_layout.h"
#include "plugin/runtime/network_window.h"
#include "plugin/tracker/step_table.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

using NameCounts = std::map<std::string, uint64_t>;

constexpr int kStepBit = static_cast<int>(abi::kEventProxyStep);
const Environment kAlways{{"NCCL_PULSE_NETWORK_WINDOW", "100"}, {"NCCL_PULSE_CLOCK", "monotonic"}};
const Environment kHalf{{"NCCL_PULSE_NETWORK_WINDOW", "50"}};

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

void Pause() {
  const timespec pause{0, 3000000};
  nanosleep(&pause, nullptr);
}

void* StartProxyOp(NcclCommunicator& comm, void* coll) {
  return Start(comm.context(), ProxyOpEvent(coll, getpid()));
}
void* StartStep(NcclCommunicator& comm, void* proxy) {
  return Start(comm.context(), StepEvent(proxy));
}

// Callbacks, and the least and most that can have passed between any two of them.
class Timeline {
 public:
  template <typename Callback>
  void Make(Callback callback) {
    Pause();
    before_.push_back(NowNs());
    callback();
    after_.push_back(NowNs());
  }
  void ExpectWithin(uint64_t measured_ns, size_t from, size_t to, const char* what) const {
    EXPECT_GE(measured_ns, before_[to] - after_[from]) << what;
    EXPECT_LE(measured_ns, after_[to] - before_[from]) << what;
  }

 private:
  std::vector<uint64_t> before_, after_;
};

// All callbacks of one step, without pauses.
void RunSend(NcclCommunicator& comm, void* proxy, uint64_t bytes) {
  void* step = StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepSendGpuWait, 0);
  RecordStep(step, abi::kStateProxyStepSendPeerWait, 0);
  RecordStep(step, abi::kStateProxyStepSendWait, bytes);
  Stop(step);
}
void RunReceive(NcclCommunicator& comm, void* proxy, uint64_t bytes) {
  void* step = StartStep(comm, proxy);
  RecordStep(step, abi::kStateProxyStepRecvWait, 0);
  RecordStep(step, abi::kStateProxyStepRecvFlushWait, bytes);
  RecordStep(step, abi::kStateProxyStepRecvGpuWait, 0);
  Stop(step);
}

uint64_t Wait(const CommunicatorSnapshot& communicator, NetworkWait wait) {
  return communicator.network_wait_ns[static_cast<size_t>(wait)];
}
using Directions = std::array<uint64_t, kNetworkDirections>;

bool IsOn() { return (NcclCommunicator::event_mask() & kStepBit) != 0; }

// Until the background thread has gone round a few times.
void WaitForPolls() {
  for (int i = 0; i < 5; ++i) {
    const int64_t before = ReadSnapshot().last_poll_realtime_ns;
    EXPECT_TRUE(WaitUntil([&] { return ReadSnapshot().last_poll_realtime_ns != before; }));
  }
}

TEST(NetworkTest, EachWaitOfASend) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    EXPECT_TRUE(IsOn());
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    Timeline line;
    void* step = nullptr;
    line.Make([&] { step = StartStep(comm, proxy); });
    line.Make([&] { RecordStep(step, abi::kStateProxyStepSendGpuWait, 1); });
    line.Make([&] { RecordStep(step, abi::kStateProxyStepSendPeerWait, 2); });
    line.Make([&] { RecordStep(step, abi::kStateProxyStepSendPeerWait, 3); });  // polled again
    line.Make([&] { RecordStep(step, abi::kStateProxyStepSendWait, 4096); });
    line.Make([&] { Stop(step); });
    line.Make([&] { Stop(proxy); });
    comm.Finalize();
    const ProcessSnapshot snapshot = ReadSnapshot();
    const CommunicatorSnapshot& measured = Find(snapshot, 1);
    EXPECT_EQ(measured.network_bytes, (Directions{4096, 0}));
    line.ExpectWithin(Wait(measured, NetworkWait::kSendGpu), 1, 2, "gpu");
    line.ExpectWithin(Wait(measured, NetworkWait::kSendPeer), 2, 4, "peer");
    line.ExpectWithin(Wait(measured, NetworkWait::kSendWire), 4, 5, "wire");
    for (NetworkWait wait :
         {NetworkWait::kReceiveWire, NetworkWait::kReceiveFlush, NetworkWait::kReceiveGpu}) {
      EXPECT_EQ(Wait(measured, wait), 0u);
    }
    ASSERT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 1u);
    for (const LatencySnapshot& latency : measured.latencies) {
      if (latency.kind != LatencyKind::kDurationNetwork) continue;
      line.ExpectWithin(latency.histogram.sum_ns, 2, 6, "duration");
      EXPECT_EQ(latency.bytes, NcclCommunicator::kBytes);
      EXPECT_EQ(latency.bus_bytes, NcclCommunicator::kBytes);
    }
    EXPECT_EQ(snapshot.callbacks[static_cast<size_t>(CallbackKind::kStep)], 6u);
    EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  });
}

TEST(NetworkTest, EachWaitOfAReceive) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    Timeline line;
    void* step = nullptr;
    line.Make([&] { step = StartStep(comm, proxy); });
    line.Make([&] { RecordStep(step, abi::kStateProxyStepRecvWait, 1); });
    line.Make([&] { RecordStep(step, abi::kStateProxyStepRecvFlushWait, 512); });
    line.Make([&] { RecordStep(step, abi::kStateProxyStepRecvGpuWait, 2); });
    line.Make([&] { Stop(step); });
    line.Make([&] { Stop(proxy); });
    comm.Finalize();
    const ProcessSnapshot snapshot = ReadSnapshot();
    const CommunicatorSnapshot& measured = Find(snapshot, 1);
    EXPECT_EQ(measured.network_bytes, (Directions{0, 512}));
    line.ExpectWithin(Wait(measured, NetworkWait::kReceiveWire), 1, 2, "wire");
    line.ExpectWithin(Wait(measured, NetworkWait::kReceiveFlush), 2, 3, "flush");
    line.ExpectWithin(Wait(measured, NetworkWait::kReceiveGpu), 3, 4, "gpu");
    for (NetworkWait wait :
         {NetworkWait::kSendGpu, NetworkWait::kSendPeer, NetworkWait::kSendWire}) {
      EXPECT_EQ(Wait(measured, wait), 0u);
    }
    for (const LatencySnapshot& latency : measured.latencies) {
      if (latency.kind != LatencyKind::kDurationNetwork) continue;
      line.ExpectWithin(latency.histogram.sum_ns, 2, 5, "duration");
    }
    EXPECT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 1u);
    EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  });
}

// The first to move data among several steps of several ProxyOps begins the duration, the last
// ProxyOp ends it; an operation without steps has none.
TEST(NetworkTest, DurationOverAllProxyOps) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    void* coll = comm.Enqueue();
    void* sending = StartProxyOp(comm, coll);
    void* receiving = StartProxyOp(comm, coll);
    void* receive = StartStep(comm, receiving);
    RecordStep(receive, abi::kStateProxyStepRecvWait, 0);
    void* send = StartStep(comm, sending);
    Timeline line;
    line.Make([&] { RecordStep(send, abi::kStateProxyStepSendWait, 8); });  // without 8 and 20
    line.Make([&] { RecordStep(receive, abi::kStateProxyStepRecvFlushWait, 8); });
    RecordStep(receive, abi::kStateProxyStepRecvGpuWait, 0);
    Stop(receive);
    Stop(receiving);
    Stop(send);
    line.Make([&] { Stop(sending); });
    comm.RunWithProxy();
    comm.Finalize();
    const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
    EXPECT_EQ(measured.network_bytes, (Directions{8, 8}));
    EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), 2u);
    ASSERT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 1u);
    for (const LatencySnapshot& latency : measured.latencies) {
      if (latency.kind != LatencyKind::kDurationNetwork) continue;
      line.ExpectWithin(latency.histogram.sum_ns, 0, 2, "duration");
    }
  });
}

// A slot's next operation is not timed by its last one's steps.
TEST(NetworkTest, DurationIsOfItsOwnOperation) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    constexpr uint64_t kOperations = 2000;  // the places are used several times over
    for (uint64_t i = 0; i < kOperations; ++i) {
      void* proxy = StartProxyOp(comm, comm.Enqueue());
      if (i % 2 == 0) RunSend(comm, proxy, 1);
      Stop(proxy);
    }
    comm.Finalize();
    const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
    EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), kOperations);
    EXPECT_EQ(Timed(measured, LatencyKind::kDurationNetwork), kOperations / 2);
    EXPECT_EQ(measured.network_bytes, (Directions{kOperations / 2, 0}));
  });
}

// The GPU's own timestamps are the durations then; bytes and waits are still of use.
TEST(NetworkTest, WithKernelTiming) {
  Environment environment = kAlways;
  environment["NCCL_PULSE_TIMING"] = "kernel";
  RunInChild(environment, [] {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    RunReceive(comm, proxy, 7);
    Stop(proxy);
    comm.Finalize();
    const CommunicatorSnapshot measured = Find(ReadSnapshot(), 1);
    EXPECT_EQ(measured.network_bytes, (Directions{0, 7}));
    EXPECT_EQ(Timed(measured, LatencyKind::kDurationNetwork), 0u);
  });
}

// NCCL starts a receive again when the network has no request to give, and forgets the old handle.
TEST(NetworkTest, RestartedReceive) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    for (int i = 0; i < 5; ++i) EXPECT_NE(StartStep(comm, proxy), nullptr);
    RunReceive(comm, proxy, 100);
    Stop(proxy);
    comm.Finalize();
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 100}));
    EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  });
}

// When all places are taken by steps of operations that go on, new ones take the fourth they come
// to, and who had it is known when it comes late.
TEST(NetworkTest, PlacesAreTakenWhenAllAreNeeded) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    std::vector<void*> forgotten;
    for (int i = 0; i < kStepProbes; ++i) forgotten.push_back(StartStep(comm, proxy));
    for (uint32_t i = 0; i < 2 * StepTable::kPlaces; ++i) {
      EXPECT_NE(StartStep(comm, proxy), nullptr);
    }
    RunSend(comm, proxy, 3);
    for (void* step : forgotten) {
      RecordStep(step, abi::kStateProxyStepSendGpuWait, 0);
      Stop(step);
    }
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{3, 0}));
    EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"stale_handle", 2}}));
  });
}

// A step that waits for long, for a late rank say, while others come and go by the thousand: the
// wait that one looks for must not be the one that is lost.
TEST(NetworkTest, LongWaitKeepsItsPlace) {
  RunInChild(kAlways, [] {
    NcclCommunicator waiting(1);
    NcclCommunicator busy(2);
    void* late = StartProxyOp(waiting, waiting.Enqueue());
    std::vector<void*> steps;
    for (int i = 0; i < 3; ++i) {
      steps.push_back(StartStep(waiting, late));
      RecordStep(steps.back(), abi::kStateProxyStepRecvWait, 0);
    }
    void* proxy = StartProxyOp(busy, busy.Enqueue());
    for (uint32_t i = 0; i < 3 * StepTable::kPlaces; ++i) RunReceive(busy, proxy, 1);
    for (void* step : steps) {
      RecordStep(step, abi::kStateProxyStepRecvFlushWait, 100);
      RecordStep(step, abi::kStateProxyStepRecvGpuWait, 0);
      Stop(step);
    }
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 300}));
    EXPECT_EQ(Find(snapshot, 2).network_bytes, (Directions{0, 3 * StepTable::kPlaces}));
    EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  });
}

// A step that nobody stopped is passed over no longer than its operation lasts: or all places would
// be such ones in the end, and steps that wait would be taken for new ones.
TEST(NetworkTest, LeftStepsEndWithTheirOperation) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    for (uint32_t i = 0; i < StepTable::kPlaces; ++i) StartStep(comm, proxy);
    RunReceive(comm, proxy, 3);
    Stop(proxy);
    EXPECT_TRUE(WaitUntil(
        [] { return Timed(Find(ReadSnapshot(), 1), LatencyKind::kDurationNetwork) == 1; }));

    proxy = StartProxyOp(comm, comm.Enqueue());
    void* step = StartStep(comm, proxy);
    RecordStep(step, abi::kStateProxyStepRecvWait, 0);
    for (uint32_t i = 1; i < StepTable::kPlaces; ++i) StartStep(comm, proxy);
    RecordStep(step, abi::kStateProxyStepRecvFlushWait, 5);
    Stop(step);
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{0, 8}));
    EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  });
}

TEST(NetworkTest, MissingArguments) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
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
  });
}

TEST(NetworkTest, StoppedTwiceAndRecordedAfterwards) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    void* step = StartStep(comm, proxy);
    RecordStep(step, abi::kStateProxyStepSendGpuWait, 0);
    RecordStep(step, abi::kStateProxyStepSendWait, 10);
    Stop(step);
    Stop(step);
    RecordStep(step, abi::kStateProxyStepSendWait, 10);
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{10, 0}));
    EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"repeated_stop", 2}}));
  });
}

TEST(NetworkTest, StatesInAnotherOrder) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
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
  });
}

TEST(NetworkTest, AfterFinalize) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
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
  });
}

// A place that is used again belongs to the next communicator, with what comes late of the last
// one.
TEST(NetworkTest, NextCommunicatorStartsAtZero) {
  RunInChild(kAlways, [] {
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
  });
}

// With PXN the ProxyOp is another process', it has no handle here, and its steps come without
// parent and with a context that must not be touched.
TEST(NetworkTest, OfAnotherProcess) {
  RunInChild(kAlways, [] {
    NcclCommunicator comm(1);
    void* coll = comm.Enqueue();
    void* proxy = Start(&comm, ProxyOpEvent(coll, getpid() + 1));
    EXPECT_EQ(proxy, nullptr);
    EXPECT_EQ(Start(&comm, StepEvent(proxy)), nullptr);
    EXPECT_EQ(Start(&comm, StepEvent(&comm)), nullptr);
    EXPECT_EQ(Start(&comm, StepEvent(coll)), nullptr);
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(IgnoredByName(snapshot),
              (NameCounts{{"foreign_process", 1}, {"unfollowed_step", 1}, {"foreign_handle", 2}}));
  });
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

// ---- windows ----

// Switches on and off and on again; no other bit of the mask ever changes, KernelCh least of all.
TEST(NetworkWindowTest, SwitchesItsOwnBitAlone) {
  for (const char* timing : {"auto", "kernel"}) {
    Environment environment = kHalf;
    environment["NCCL_PULSE_TIMING"] = timing;
    RunInChild(environment, [] {
      const uint64_t begin_ns = NowNs();
      NcclCommunicator comm(1);
      EXPECT_FALSE(IsOn());
      const int others = NcclCommunicator::event_mask();
      comm.RunWithProxy();
      std::set<int> seen;
      int changes = 0;
      bool was_on = false;
      EXPECT_TRUE(WaitUntil([&] {
        const int mask = NcclCommunicator::event_mask();
        seen.insert(mask & ~kStepBit);
        const bool is_on = (mask & kStepBit) != 0;
        changes += is_on != was_on ? 1 : 0;
        was_on = is_on;
        return changes >= 4;
      }));
      EXPECT_EQ(seen, std::set<int>{others});
      // Another communicator's init finds and leaves the bit as it is.
      const auto is_on_after_init = [](uint64_t id) {
        NcclCommunicator other(id);
        const bool is_on = IsOn();
        other.Finalize();
        return is_on;
      };
      uint64_t id = 2;
      EXPECT_TRUE(WaitUntil([&] { return IsOn() && is_on_after_init(id++); }));
      EXPECT_TRUE(WaitUntil([&] { return !IsOn() && !is_on_after_init(id++); }));
      EXPECT_EQ(NcclCommunicator::event_mask() & ~kStepBit, others);
      const uint64_t observed_ns = ReadSnapshot().network_observed_ns;
      EXPECT_GE(observed_ns, 2 * NetworkWindow::kLengthNs);
      EXPECT_LE(observed_ns, NowNs() - begin_ns);
    });
  }
}

// Steps go on being reported, for the operations that were called while the bit was on.
TEST(NetworkWindowTest, OperationsAreWatchedAsAWhole) {
  RunInChild(kHalf, [] {
    NcclCommunicator comm(1);
    comm.RunWithProxy();
    EXPECT_TRUE(WaitUntil(IsOn));
    void* proxy = StartProxyOp(comm, comm.Enqueue());
    void* inside = StartStep(comm, proxy);
    ASSERT_NE(inside, nullptr);
    RecordStep(inside, abi::kStateProxyStepSendGpuWait, 0);
    EXPECT_TRUE(WaitUntil([] { return !IsOn(); }));
    RecordStep(inside, abi::kStateProxyStepSendPeerWait, 0);
    RecordStep(inside, abi::kStateProxyStepSendWait, 1000);
    Stop(inside);
    RunSend(comm, proxy, 1);
    Stop(proxy);
    comm.Finalize();
    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{1001, 0}));
    EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationNetwork), 1u);
    EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  });
}

// A graph keeps the mask it was captured with: its steps would come for ever, or never.
TEST(NetworkWindowTest, GraphsAreLeftOutUnlessAlwaysWatched) {
  for (const bool always : {false, true}) {
    RunInChild(always ? kAlways : kHalf, [always] {
      NcclCommunicator comm(1);
      comm.RunWithProxy();
      EXPECT_TRUE(WaitUntil(IsOn));
      void* call = Start(comm.context(), CallEvent("AllReduce", 1024, "ncclFloat32", true));
      Stop(call);
      void* replayed = Start(comm.context(), CollEvent(call, 0, 1));
      void* proxy = StartProxyOp(comm, replayed);
      if (always) {
        RunSend(comm, proxy, 5);
      } else {
        EXPECT_EQ(StartStep(comm, proxy), nullptr);
      }
      Stop(proxy);
      comm.Finalize();
      const ProcessSnapshot snapshot = ReadSnapshot();
      EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{always ? 5u : 0u, 0}));
      EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationNetwork), always ? 1u : 0u);
      EXPECT_EQ(IgnoredByName(snapshot),
                always ? NameCounts{} : (NameCounts{{"unfollowed_step", 1}}));
    });
  }
}

TEST(NetworkWindowTest, StaysClosedWithoutTraffic) {
  RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", "99"}}, [] {
    NcclCommunicator comm(1);
    StartProxyOp(comm, comm.Enqueue());  // of shared memory: never stops
    WaitForPolls();
    EXPECT_FALSE(IsOn());
    EXPECT_EQ(ReadSnapshot().network_observed_ns, 0u);
  });
}

// The mask may vanish with NCCL once its last communicator is gone.
TEST(NetworkWindowTest, LastCommunicatorTakesTheBitBack) {
  RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", "99"}}, [] {
    NcclCommunicator first(1);
    NcclCommunicator second(2);
    first.RunWithProxy();
    EXPECT_TRUE(WaitUntil(IsOn));
    first.Finalize();
    second.Finalize();
    EXPECT_FALSE(IsOn());
    const uint64_t observed_ns = ReadSnapshot().network_observed_ns;
    WaitForPolls();
    EXPECT_FALSE(IsOn());
    const uint64_t settled_ns = ReadSnapshot().network_observed_ns;
    EXPECT_GE(settled_ns, observed_ns);
    WaitForPolls();
    EXPECT_EQ(ReadSnapshot().network_observed_ns, settled_ns);
    NcclCommunicator third(3);
    EXPECT_TRUE(WaitUntil(IsOn)) << "and it goes on with the next one";
  });
}

// No NCCL has its mask there; it could not be trusted to stay.
TEST(NetworkWindowTest, MaskOnAStackIsWrittenOnce) {
  RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", "99"}}, [] {
    const auto& profiler = ProfilerOf<abi::v5::Profiler>(5);
    void* context = nullptr;
    int mask = 0;
    profiler.init(&context, 1, &mask, "stack", 1, 2, 0, Logger);
    NcclCommunicator other(2);
    other.RunWithProxy();
    EXPECT_TRUE(WaitUntil(IsOn));
    EXPECT_EQ(__atomic_load_n(&mask, __ATOMIC_RELAXED) & kStepBit, 0);
    profiler.finalize(context);
  });
}

}  // namespace
}  // namespace nccl_pulse
