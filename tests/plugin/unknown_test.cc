// What a later NCCL may send, and what this one sends unasked or leaves out.
#include <gtest/gtest.h>
#include <unistd.h>

#include "plugin/abi/profiler_v6.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

using NameCounts = std::map<std::string, uint64_t>;

TEST_WITH_COMM(UnknownTest, EventTypes) {
  for (uint64_t type : {uint64_t{0}, uint64_t{1} << 12, uint64_t{1} << 15, uint64_t{1} << 63,
                        uint64_t{abi::kEventColl | abi::kEventP2p}}) {
    Descriptor event{};
    event.type = type;
    EXPECT_EQ(Start(comm.context(), event), nullptr);
  }
  comm.RunWithProxy();
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"unknown_type", 5}}));
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 1u);
}

TEST_WITH_COMM(UnknownTest, EventTypesThatWereNotAskedFor) {
  void* coll = comm.Enqueue();
  for (uint64_t type : {abi::kEventProxyStep, abi::kEventProxyCtrl, abi::kEventNetPlugin}) {
    Descriptor event{};
    event.type = type;
    event.parentObj = coll;
    EXPECT_EQ(Start(comm.context(), event), nullptr);
  }
  EXPECT_EQ(Start(comm.context(), ChannelEvent(coll, 0, 1)), nullptr);  // timing is not kernel
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), (NameCounts{{"unrequested_type", 4}}));
}

// NCCL delivers these with any of the others: no mask keeps them away. A GroupApi in capture has a
// ticket, so NCCL goes on to record its states, without arguments, and to stop it; also after
// finalize. One whose launches nobody follows has none.
TEST_WITH_COMM(UnknownTest, GroupsAreExpected) {
  Descriptor event{};
  event.type = abi::kEventGroup;
  EXPECT_EQ(Start(comm.context(), event), nullptr);
  event.type = abi::kEventGroupApi;
  event.groupApi.graphCaptured = false;
  EXPECT_EQ(Start(comm.context(), event), nullptr);
  event.groupApi.graphCaptured = true;
  void* group = Start(comm.context(), event);
  ASSERT_NE(group, nullptr);
  Record(group, abi::kStateGroupStartApiStop);
  Record(group, abi::kStateGroupEndApiStart);
  Stop(group);
  void* left_open = Start(comm.context(), event);
  comm.Finalize();
  Record(left_open, abi::kStateGroupEndApiStart);
  Stop(left_open);
  EXPECT_EQ(IgnoredByName(ReadSnapshot()), NameCounts{});
}

TEST_WITH_COMM(UnknownTest, States) {
  void* coll = comm.Enqueue();
  void* proxy = Start(comm.context(), ProxyOpEvent(coll, getpid()));
  for (int state : {-1, 32, 1000, INT32_MIN, INT32_MAX}) Record(proxy, state);
  for (int state = 0; state < 32; ++state) {
    if (state != abi::kStateKernelChStop) Record(proxy, state);
  }
  Stop(proxy);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"unknown_state", 5}}));
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 1u);
}

TEST_WITH_COMM(UnknownTest, NoDescriptorNoHandle) {
  const auto& profiler = ProfilerOf<abi::v5::Profiler>(5);
  void* handle = &handle;
  EXPECT_EQ(profiler.startEvent(comm.context(), &handle, nullptr), abi::kSuccess);
  EXPECT_EQ(handle, nullptr);
  Descriptor event = CollEvent(nullptr, 0, 1);
  EXPECT_EQ(profiler.startEvent(comm.context(), nullptr, &event), abi::kSuccess);
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"missing_argument", 1}}));
  EXPECT_EQ(Operations(Find(snapshot, 1)), 1u);
}

TEST_WITH_COMM(UnknownTest, NoStrings) {
  Start(comm.context(), CallEvent(nullptr, 100, nullptr));
  Start(comm.context(), P2pCallEvent(nullptr, 100, nullptr));
  Descriptor event = CollEvent(nullptr, 0, 1);
  event.coll.func = event.coll.datatype = event.coll.algo = event.coll.proto = nullptr;
  void* coll = Start(comm.context(), event);
  Stop(Start(comm.context(), ProxyOpEvent(coll, getpid())));
  event = P2pEvent(nullptr, 0, 1, 1);
  event.p2p.datatype = nullptr;
  Start(comm.context(), event);
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(IgnoredByName(snapshot), NameCounts{});
  EXPECT_EQ(Calls(Find(snapshot, 1)), 2u);
  EXPECT_EQ(Bytes(Find(snapshot, 1)), 200u);  // an unknown type counts as bytes
  EXPECT_EQ(Operations(Find(snapshot, 1)), 1u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 1u);
}

// Names that no NCCL of today has: kept as they are, and harmless in a label.
TEST_WITH_COMM(UnknownTest, NewNames) {
  const std::string long_name(300, 'x');
  for (const char* func : {"AllToAllv2", "weird\"name\n\\{}", "\xff\xfe", "", long_name.c_str()}) {
    Start(comm.context(), CallEvent(func, 1, "ncclFloat4e2m1x1234567890123456789"));
  }
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Calls(Find(snapshot, 1)), 5u);
  for (const CallCountSnapshot& count : Find(snapshot, 1).calls) {
    for (char c : count.op) EXPECT_TRUE(c > 0x20 && c < 0x7f) << count.op;
    EXPECT_LT(count.op.size(), 32u);
  }
}

TEST_WITH_COMM(UnknownTest, MoreNamesThanTheTableHolds) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("Func" + std::to_string(i));
  for (const std::string& name : names) {
    Start(comm.context(), CallEvent(name.c_str(), 1, "ncclInt8"));
  }
  comm.RunWithProxy();
  const ProcessSnapshot snapshot = comm.FinalizeAndRead();
  EXPECT_EQ(Calls(Find(snapshot, 1)), 1001u);
  EXPECT_EQ(Timed(Find(snapshot, 1), LatencyKind::kCompletionProxy), 1u);
}

TEST_IN_CHILD(UnknownTest, CopyEngineEventsOfV6) {
  const auto& profiler = ProfilerOf<abi::v6::Profiler>(6);
  void* context = nullptr;
  int mask = 0;
  profiler.init(&context, 1, &mask, "ce", 1, 2, 0, Logger);
  EXPECT_NE(mask & static_cast<int>(abi::kEventCeColl), 0);
  for (uint64_t type : {abi::kEventCeColl, abi::kEventCeSync, abi::kEventCeBatch}) {
    abi::v6::Descriptor event{};
    event.type = type;
    if (type == abi::kEventCeColl) {
      event.ceColl.func = "AllGather";
      event.ceColl.datatype = "ncclInt8";
    }
    void* handle = &handle;
    EXPECT_EQ(profiler.startEvent(context, &handle, &event), abi::kSuccess);
    EXPECT_EQ(handle, nullptr);
  }
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(IgnoredByName(snapshot), (NameCounts{{"unrequested_type", 2}}));
  ASSERT_EQ(Operations(Find(snapshot, 1)), 1u);
  EXPECT_EQ(Find(snapshot, 1).algorithms[0].algo, "CE");
  EXPECT_EQ(Untimed(Find(snapshot, 1)), 1u);
}

}  // namespace
}  // namespace nccl_pulse
