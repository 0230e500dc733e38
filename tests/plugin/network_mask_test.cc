// Windows: when NCCL is asked for network steps at all.
#include <gtest/gtest.h>

#include <set>

#include "plugin/runtime/network_window.h"
#include "tests/plugin/harness.h"
#include "tests/plugin/network_job.h"

namespace nccl_pulse {
namespace {

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
TEST_WITH_COMM(NetworkWindowTest, OperationsAreWatchedAsAWhole, kHalf) {
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
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{1001, 0}));
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationNetwork), 1u);
  EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
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
      const ProcessSnapshot snapshot = comm.FinalizeAndRead();
      EXPECT_EQ(Find(snapshot, 1).network_bytes, (Directions{always ? 5u : 0u, 0}));
      EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kDurationNetwork), always ? 1u : 0u);
      EXPECT_EQ(IgnoredByName(snapshot),
                always ? NameCounts{} : (NameCounts{{"unfollowed_step", 1}}));
    });
  }
}

TEST_WITH_COMM(NetworkWindowTest, StaysClosedWithoutTraffic, {"NCCL_PULSE_NETWORK_WINDOW", "99"}) {
  StartProxyOp(comm, comm.Enqueue());  // of shared memory: never stops
  WaitForPolls();
  EXPECT_FALSE(IsOn());
  EXPECT_EQ(ReadSnapshot().network_observed_ns, 0u);
}

// The mask may vanish with NCCL once its last communicator is gone.
TEST_IN_CHILD(NetworkWindowTest, LastCommunicatorTakesTheBitBack,
              {"NCCL_PULSE_NETWORK_WINDOW", "99"}) {
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
}

// No NCCL has its mask there; it could not be trusted to stay.
TEST_IN_CHILD(NetworkWindowTest, MaskOnAStackIsWrittenOnce, {"NCCL_PULSE_NETWORK_WINDOW", "99"}) {
  const auto& profiler = ProfilerOf<abi::v5::Profiler>(5);
  void* context = nullptr;
  int mask = 0;
  profiler.init(&context, 1, &mask, "stack", 1, 2, 0, Logger);
  NcclCommunicator other(2);
  other.RunWithProxy();
  EXPECT_TRUE(WaitUntil(IsOn));
  EXPECT_EQ(__atomic_load_n(&mask, __ATOMIC_RELAXED) & kStepBit, 0);
  profiler.finalize(context);
}

}  // namespace
}  // namespace nccl_pulse
