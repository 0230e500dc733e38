// Two NCCLs in one process (one linked in, one loaded) may have different versions of the API: each
// has a mask of its own, and gets what its version has.
#include <gtest/gtest.h>

#include <algorithm>

#include "plugin/abi/profiler_v3.h"
#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v6.h"
#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

constexpr int kStepBit = static_cast<int>(abi::kEventProxyStep);
constexpr int kChannelBit = static_cast<int>(abi::kEventKernelCh);
constexpr int kMaskOfV4 = static_cast<int>(abi::kEventColl | abi::kEventP2p | abi::kEventProxyOp);
constexpr int kMaskOfV6 =
    kMaskOfV4 | static_cast<int>(abi::kEventGroupApi | abi::kEventCollApi | abi::kEventP2pApi |
                                 abi::kEventKernelLaunch | abi::kEventCeColl);

// As each NCCL's: an int in its own memory.
int g_old_mask = 0;
int g_new_mask = 0;
int Read(const int& mask) { return __atomic_load_n(&mask, __ATOMIC_RELAXED); }

void* InitV3() {
  void* context = nullptr;
  EXPECT_EQ(ProfilerOf<abi::v3::Profiler>(3).init(&context, &g_old_mask), abi::kSuccess);
  return context;
}
void* InitV4(uint64_t comm_id) {
  void* context = nullptr;
  EXPECT_EQ(
      ProfilerOf<abi::v4::Profiler>(4).init(&context, &g_old_mask, "old", comm_id, 1, 2, 0, Logger),
      abi::kSuccess);
  return context;
}
void* InitV6(uint64_t comm_id) {
  void* context = nullptr;
  EXPECT_EQ(
      ProfilerOf<abi::v6::Profiler>(6).init(&context, comm_id, &g_new_mask, "new", 1, 2, 0, Logger),
      abi::kSuccess);
  return context;
}

// An eager AllReduce with the callbacks of v6 (call, launch) that v4 does not have.
void RunV6(void* context) {
  const auto& profiler = ProfilerOf<abi::v6::Profiler>(6);
  const auto make = [&](abi::v6::Descriptor event) {
    void* handle = nullptr;
    profiler.startEvent(context, &handle, &event);
    if (handle != nullptr) profiler.stopEvent(handle);
  };
  abi::v6::Descriptor call{};
  call.type = abi::kEventCollApi;
  call.collApi.func = "AllReduce";
  call.collApi.datatype = "ncclInt8";
  call.collApi.count = 4096;
  make(call);
  abi::v6::Descriptor launch{};
  launch.type = abi::kEventKernelLaunch;
  make(launch);
}

bool Says(const std::vector<std::string>& log, const std::string& text) {
  return std::any_of(log.begin(), log.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

void ExpectBoth() {
  EXPECT_EQ(Read(g_old_mask), kMaskOfV4);
  EXPECT_EQ(Read(g_new_mask), kMaskOfV6);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Find(snapshot, 4).nccl_api_version, 4);
  EXPECT_EQ(Find(snapshot, 4).event_mask, static_cast<uint32_t>(kMaskOfV4));
  EXPECT_FALSE(Find(snapshot, 4).has_heartbeat);
  EXPECT_EQ(Find(snapshot, 6).nccl_api_version, 6);
  EXPECT_EQ(Find(snapshot, 6).event_mask, static_cast<uint32_t>(kMaskOfV6));
  EXPECT_TRUE(Find(snapshot, 6).has_heartbeat);
  EXPECT_EQ(snapshot.duration_source, "stream");
  EXPECT_EQ(snapshot.completion_source, "stream");
  EXPECT_EQ(snapshot.event_mask_changes, 0u);
}

TEST_WITH_GPU(SeveralNcclsTest, TheOldOneFirst) {
  InitV4(4);
  EXPECT_EQ(ReadSnapshot().duration_source, "none");
  EXPECT_EQ(ReadSnapshot().completion_source, "proxy");
  TakeLog();
  void* context = InitV6(6);
  EXPECT_TRUE(Says(TakeLog(), "another NCCL in this process: profiler API v6"));
  WaitForPoll();
  ExpectBoth();
  EXPECT_EQ(ReadSnapshot().nccl_api_version, 4) << "the first one's";
  EXPECT_EQ(ReadSnapshot().event_mask, static_cast<uint32_t>(kMaskOfV4));
  for (int i = 0; i < 3; ++i) RunV6(context);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(Find(ReadSnapshot(), 6).launches, 3u);
  EXPECT_EQ(Find(ReadSnapshot(), 6).launches_completed, 3u);
  // Further ones change nothing.
  InitV4(44);
  InitV6(66);
  EXPECT_FALSE(Says(TakeLog(), "another NCCL"));
  WaitForPoll();
  ExpectBoth();
}

TEST_WITH_GPU(SeveralNcclsTest, TheNewOneFirst) {
  InitV6(6);
  InitV4(4);
  WaitForPoll();
  ExpectBoth();
  EXPECT_EQ(ReadSnapshot().nccl_api_version, 6);
  EXPECT_EQ(ReadSnapshot().event_mask, static_cast<uint32_t>(kMaskOfV6));
}

// Timestamps are asked for where there are any, and what was decided first holds.
TEST(SeveralNcclsTest, KernelTiming) {
  const Environment kernel{{"NCCL_PULSE_TIMING", "kernel"}};
  RunInChild(kernel, [] {
    InitV6(6);
    const std::string said = CaptureStandardError([] { InitV3(); });
    EXPECT_NE(said.find("profiler API v3"), std::string::npos) << said;
    EXPECT_NE(said.find("no durations"), std::string::npos) << said;
    EXPECT_EQ(CaptureStandardError([] { InitV3(); }), "") << "once";
    EXPECT_EQ(Read(g_old_mask), kMaskOfV4);
    EXPECT_NE(Read(g_new_mask) & kChannelBit, 0);
    EXPECT_EQ(ReadSnapshot().duration_source, "kernel");
  });
  RunInChild(kernel, [] {
    const std::string said = CaptureStandardError([] { InitV3(); });
    EXPECT_NE(said.find("using auto"), std::string::npos) << said;
    InitV6(6);
    EXPECT_EQ(Read(g_old_mask), kMaskOfV4);
    EXPECT_EQ(Read(g_new_mask), kMaskOfV6);
    EXPECT_EQ(ReadSnapshot().timing, "auto");
  });
  RunInChild(kernel, [] {
    InitV4(4);
    InitV6(6);
    EXPECT_EQ(Read(g_old_mask), kMaskOfV4 | kChannelBit);
    EXPECT_EQ(Read(g_new_mask), kMaskOfV6 | kChannelBit);
  });
}

// Steps are watched where those of graphs can be told from others.
TEST(SeveralNcclsTest, NetworkSteps) {
  for (const bool old_first : {false, true}) {
    RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", "100"}}, [old_first] {
      if (old_first) InitV4(4);
      InitV6(6);
      if (!old_first) InitV4(4);
      EXPECT_EQ(Read(g_old_mask), kMaskOfV4);
      EXPECT_EQ(Read(g_new_mask), kMaskOfV6 | kStepBit);
      const std::vector<std::string> log = TakeLog();
      EXPECT_TRUE(Says(
          log, "NCCL_PULSE_NETWORK_WINDOW needs NCCL 2.28.3 or newer (this is profiler API v4)"));
    });
    RunInChild({{"NCCL_PULSE_NETWORK_WINDOW", "50"}}, [old_first] {
      if (old_first) InitV4(4);
      NcclCommunicator traffic(5);
      if (!old_first) InitV4(4);
      traffic.RunWithProxy();
      const auto is_on = [] { return (NcclCommunicator::event_mask() & kStepBit) != 0; };
      for (int windows = 0; windows < 2; ++windows) {
        EXPECT_TRUE(WaitUntil(is_on));
        EXPECT_EQ(Read(g_old_mask), kMaskOfV4);
        InitV4(40);  // init writes its mask, also within a window
        EXPECT_EQ(Read(g_old_mask), kMaskOfV4);
        EXPECT_TRUE(WaitUntil([&] { return !is_on(); }));
      }
      EXPECT_EQ(ReadSnapshot().event_mask_changes, 0u) << "nobody else's";
    });
  }
}

}  // namespace
}  // namespace nccl_pulse
