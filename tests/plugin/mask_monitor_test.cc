// The event mask is NCCL's, and somebody else may change it.
#include "plugin/runtime/mask_monitor.h"

#include <gtest/gtest.h>

#include "plugin/abi/common.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kOurs = abi::kEventColl | abi::kEventP2p | abi::kEventProxyOp |
                           abi::kEventCollApi | abi::kEventP2pApi | abi::kEventKernelLaunch |
                           abi::kEventGroupApi;

// As NCCL's: in a library's own memory.
int g_mask = 0;
int g_other_mask = 0;
void Set(int& mask, uint32_t value) { mask = static_cast<int>(value); }

TEST(MaskMonitorTest, ChangesAreCountedAndEnd) {
  MaskMonitor watch;
  EXPECT_EQ(watch.Look().changes, 0u);
  Set(g_mask, kOurs);
  watch.Attach(1, &g_mask, kOurs, 0);
  watch.Attach(2, &g_mask, kOurs, 0);
  EXPECT_FALSE(watch.Look().is_new);
  Set(g_mask, abi::kEventColl);
  MaskMonitor::State state = watch.Look();
  EXPECT_TRUE(state.is_new);
  EXPECT_EQ(state.ours, kOurs);
  EXPECT_EQ(state.now, abi::kEventColl);
  EXPECT_EQ(state.foreign, abi::kEventColl);
  EXPECT_EQ(state.changes, 1u);
  state = watch.Look();
  EXPECT_FALSE(state.is_new);
  EXPECT_EQ(state.foreign, abi::kEventColl);
  Set(g_mask, kOurs | abi::kEventKernelCh);
  EXPECT_EQ(watch.Look().changes, 2u);
  Set(g_mask, kOurs);
  state = watch.Look();
  EXPECT_FALSE(state.is_new);
  EXPECT_EQ(state.foreign, 0u);
  EXPECT_EQ(state.changes, 2u);
  EXPECT_EQ(static_cast<uint32_t>(g_mask), kOurs) << "only looked at";
}

TEST(MaskMonitorTest, AMaskWithoutEventsIsNotOurs) {
  MaskMonitor watch;
  Set(g_mask, kOurs);
  watch.Attach(1, &g_mask, kOurs, 0);
  Set(g_mask, 0);
  const MaskMonitor::State state = watch.Look();
  EXPECT_EQ(state.now, 0u);
  EXPECT_EQ(state.foreign, MaskMonitor::kNoEvents);
}

TEST(MaskMonitorTest, WhatWeSwitchIsNotForeign) {
  MaskMonitor watch;
  Set(g_mask, kOurs);
  watch.Attach(1, &g_mask, kOurs, abi::kEventProxyStep);
  Set(g_mask, kOurs | abi::kEventProxyStep);
  EXPECT_EQ(watch.Look().changes, 0u);
  Set(g_mask, kOurs);
  EXPECT_EQ(watch.Look().changes, 0u);
  Set(g_mask, abi::kEventProxyStep);
  EXPECT_EQ(watch.Look().changes, 1u);
  EXPECT_EQ(watch.Look().foreign, abi::kEventProxyStep) << "as it is, and it implies others";
  // Where we do not switch it, it is somebody else's.
  Set(g_other_mask, kOurs);
  watch.Attach(2, &g_other_mask, kOurs, 0);
  Set(g_other_mask, kOurs | abi::kEventProxyStep);
  EXPECT_EQ(watch.Look().changes, 2u);
}

// Two NCCLs: what both still have. An event that one lacks may be missing.
TEST(MaskMonitorTest, SeveralMasks) {
  MaskMonitor watch;
  Set(g_mask, kOurs);
  Set(g_other_mask, abi::kEventColl);
  watch.Attach(1, &g_mask, kOurs, 0);
  watch.Attach(2, &g_other_mask, abi::kEventColl, 0);
  EXPECT_EQ(watch.Look().foreign, 0u);
  Set(g_mask, abi::kEventP2p);
  EXPECT_EQ(watch.Look().foreign, abi::kEventP2p);
  Set(g_other_mask, abi::kEventProxyOp);
  EXPECT_EQ(watch.Look().foreign, MaskMonitor::kNoEvents);
  Set(g_other_mask, abi::kEventProxyOp | abi::kEventP2p);
  EXPECT_EQ(watch.Look().foreign, abi::kEventP2p);
  Set(g_other_mask, abi::kEventColl);
  EXPECT_EQ(watch.Look().foreign, abi::kEventP2p);
  EXPECT_EQ(watch.Look().changes, 3u);
}

// NCCL's memory goes with its last communicator.
TEST(MaskMonitorTest, IsNotLookedAtWithoutACommunicator) {
  MaskMonitor watch;
  Set(g_mask, kOurs);
  watch.Attach(1, &g_mask, kOurs, 0);
  watch.Attach(2, &g_mask, kOurs, 0);
  watch.Detach(1);
  Set(g_mask, abi::kEventColl);
  EXPECT_EQ(watch.Look().changes, 1u) << "one lives";
  watch.Detach(2);
  watch.Detach(2);
  Set(g_mask, abi::kEventP2p);
  EXPECT_EQ(watch.Look().changes, 1u);
  EXPECT_EQ(watch.Look().foreign, 0u);
  int on_the_stack = 0;
  watch.Attach(3, &on_the_stack, kOurs, 0);
  watch.Attach(4, nullptr, kOurs, 0);
  EXPECT_EQ(watch.Look().changes, 1u) << "could be gone before its communicator";
}

TEST(MaskMonitorTest, SaysWhatFollows) {
  const auto says = [](uint32_t now, const char* text) {
    return DescribeMaskChange(kOurs, now).find(text) != std::string::npos;
  };
  EXPECT_TRUE(says(kOurs | abi::kEventKernelCh, "from 0xf0e to 0xf4e"));
  EXPECT_TRUE(says(kOurs | abi::kEventKernelCh, "can hang it"));
  EXPECT_FALSE(says(kOurs | abi::kEventKernelCh, "no longer"));
  EXPECT_TRUE(says(kOurs & ~abi::kEventKernelLaunch, "what is in flight is unknown"));
  EXPECT_FALSE(says(kOurs & ~abi::kEventKernelLaunch, "no longer counted"));
  EXPECT_TRUE(says(0, "calls are no longer counted"));
  EXPECT_TRUE(says(0, "operations are no longer counted"));
  EXPECT_TRUE(says(0, "network traffic is no longer seen"));
  // Implied by others, so still there.
  EXPECT_FALSE(says(abi::kEventProxyStep, "no longer counted"));
  EXPECT_TRUE(says(kOurs | abi::kEventProxyCtrl, "counted as ignored"));
}

// The whole way, with the network's window open now and then.
TEST_WITH_COMM(MaskMonitorTest, SaidOnceCountedAndLeftAlone, {"NCCL_PULSE_NETWORK_WINDOW", "50"}) {
  comm.RunWithProxy();
  const int ours = comm.event_mask() & ~static_cast<int>(abi::kEventProxyStep);
  const auto changes = [] { return ReadSnapshot().event_mask_changes; };
  const int foreign = ours | static_cast<int>(abi::kEventKernelCh | abi::kEventProxyStep);
  const std::string said = CaptureStandardError([&] {
    for (uint64_t change = 1; change <= 2; ++change) {
      NcclCommunicator::ChangeEventMask(foreign);
      EXPECT_TRUE(WaitUntil([&] { return changes() == change; }));
      // Longer than a window would have been open.
      int64_t polls = 0;
      int64_t last = 0;
      EXPECT_TRUE(WaitUntil([&] {
        const int64_t poll = ReadSnapshot().last_poll_realtime_ns;
        polls += poll != last ? 1 : 0;
        last = poll;
        return polls > 10;
      }));
      EXPECT_EQ(NcclCommunicator::event_mask(), foreign);
      EXPECT_NE(ReadSnapshot().foreign_event_mask & abi::kEventKernelCh, 0u);
      NcclCommunicator::ChangeEventMask(ours);
      EXPECT_TRUE(WaitUntil([] { return ReadSnapshot().foreign_event_mask == 0; }));
    }
  });
  const std::string text = "event mask was changed by another tool";
  const size_t first = said.find(text);
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find(text, first + 1), std::string::npos) << "once: " << said;
  EXPECT_EQ(changes(), 2u);
  for (const std::string& line : TakeLog()) {
    EXPECT_EQ(line.find(text), std::string::npos) << "NCCL is not calling";
  }
}

}  // namespace
}  // namespace nccl_pulse
