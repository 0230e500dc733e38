// What holds for each version of the profiler API: the same operations through each of the seven
// exported structures.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <type_traits>

#include "plugin/abi/profiler_v1.h"
#include "plugin/abi/profiler_v2.h"
#include "plugin/abi/profiler_v3.h"
#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"
#include "plugin/abi/profiler_v7.h"
#include "tests/plugin/harness.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kCommId = 0xabcdef0123456789;
constexpr uint64_t kCount = 1000;

template <int kVersionNumber, typename ProfilerType, typename DescriptorType,
          typename StateArgsType>
struct ApiOf {
  static constexpr int kVersion = kVersionNumber;
  using Profiler = ProfilerType;
  using Descriptor = DescriptorType;
  using StateArgs = StateArgsType;

  const Profiler& profiler = ProfilerOf<Profiler>(kVersion);
  void* context = nullptr;
  int mask = 0;

  void Init(const char* name = "the name", int rank = 3) {
    if constexpr (kVersion <= 3) {
      EXPECT_EQ(profiler.init(&context, &mask), abi::kSuccess);
    } else if constexpr (kVersion == 4) {
      EXPECT_EQ(profiler.init(&context, &mask, name, kCommId, 2, 16, rank, Logger), abi::kSuccess);
    } else {
      EXPECT_EQ(profiler.init(&context, kCommId, &mask, name, 2, 16, rank, Logger), abi::kSuccess);
    }
  }

  // Before v5 the event of an operation has a Group as its parent. Without a handle for the Group,
  // NCCL omits the operation (ncclProfilerStartTaskEvents, 2.23.4 to 2.27.7).
  void* Start(Descriptor event) {
    const bool has_group =
        kVersion < 5 && (event.type == abi::kEventColl || event.type == abi::kEventP2p);
    if (has_group) {
      Descriptor group{};
      group.type = abi::kEventGroup;
      event.parentObj = Start(group);
      if (event.parentObj == nullptr) return nullptr;
    }
    void* handle = &event;
    EXPECT_EQ(profiler.startEvent(context, &handle, &event), abi::kSuccess);
    EXPECT_NE(handle, &event) << "the handle was not written";
    if (has_group) Stop(event.parentObj);
    return handle;
  }

  void Stop(void* handle) { EXPECT_EQ(profiler.stopEvent(handle), abi::kSuccess); }

  // A member of the descriptor that is a number in v1 and a string after it.
  template <typename Field>
  static void Set(Field& field, [[maybe_unused]] uint8_t number,
                  [[maybe_unused]] const char* text) {
    if constexpr (std::is_same_v<Field, uint8_t>) {
      field = number;
    } else {
      field = text;
    }
  }

  template <typename Event>
  static void SetIdentity([[maybe_unused]] Event& event) {
    if constexpr (kVersion <= 3) {
      event.name = "the name";
      event.commHash = kCommId;
    }
  }

  Descriptor Coll(uint64_t sequence) {
    Descriptor event{};
    event.type = abi::kEventColl;
    event.rank = 3;
    event.coll.count = kCount;
    event.coll.seqNumber = sequence;
    event.coll.root = 2;
    SetIdentity(event.coll);
    Set(event.coll.func, 4, "AllReduce");
    Set(event.coll.datatype, 7, "ncclFloat32");
    Set(event.coll.algo, 1, "RING");
    Set(event.coll.proto, 2, "SIMPLE");
    if constexpr (kVersion >= 4) event.coll.nChannels = 1;
    return event;
  }

  Descriptor P2p() {
    Descriptor event{};
    event.type = abi::kEventP2p;
    event.rank = 3;
    event.p2p.peer = 1;
    event.p2p.count = kCount;
    SetIdentity(event.p2p);
    Set(event.p2p.func, 6, "Send");
    Set(event.p2p.datatype, 0, "ncclInt8");
    return event;
  }

  void Call(const char* func, const char* datatype) {
    if constexpr (kVersion >= 5) {
      Descriptor event{};
      event.type = abi::kEventCollApi;
      event.collApi.func = func;
      event.collApi.datatype = datatype;
      event.collApi.count = kCount;
      event.collApi.root = 2;
      Start(event);
    }
  }

  void* ProxyOp(void* parent) {
    Descriptor event{};
    event.type = abi::kEventProxyOp;
    event.parentObj = parent;
    event.proxyOp.pid = getpid();
    return Start(event);
  }
};

template <typename Api>
class VersionsTest : public ::testing::Test {};

using Versions =
    ::testing::Types<ApiOf<1, abi::v1::Profiler, abi::v1::Descriptor, abi::v1::StateArgs>,
                     ApiOf<2, abi::v2::Profiler, abi::v2::Descriptor, abi::v2::StateArgs>,
                     ApiOf<3, abi::v3::Profiler, abi::v3::Descriptor, abi::v3::StateArgs>,
                     ApiOf<4, abi::v4::Profiler, abi::v4::Descriptor, abi::v4::StateArgs>,
                     ApiOf<5, abi::v5::Profiler, abi::v5::Descriptor, abi::v5::StateArgs>,
                     ApiOf<6, abi::v6::Profiler, abi::v6::Descriptor, abi::v6::StateArgs>,
                     ApiOf<7, abi::v7::Profiler, abi::v7::Descriptor, abi::v7::StateArgs>>;
struct VersionName {
  template <typename Api>
  static std::string GetName(int /*index*/) {
    return "v" + std::to_string(Api::kVersion);
  }
};
TYPED_TEST_SUITE(VersionsTest, Versions, VersionName);

TYPED_TEST(VersionsTest, CountsAndCompletes) {
  RunInChild({}, [] {
    TypeParam api;
    EXPECT_NE(api.profiler.name, nullptr);
    api.Init();
    ASSERT_NE(api.context, nullptr);
    for (uint64_t i = 0; i < 5; ++i) {
      api.Call("AllReduce", "ncclFloat32");
      void* coll = api.Start(api.Coll(i));
      void* proxy = api.ProxyOp(coll);
      typename TypeParam::StateArgs args{};
      EXPECT_EQ(api.profiler.recordEventState(proxy, abi::kStateProxyOpInProgress, &args),
                abi::kSuccess);
      EXPECT_EQ(api.profiler.recordEventState(proxy, abi::kStateProxyOpInProgress, nullptr),
                abi::kSuccess);
      api.Stop(coll);
      api.Stop(proxy);
    }
    api.Call("Send", "ncclInt8");
    api.Stop(api.Start(api.P2p()));
    EXPECT_EQ(api.profiler.finalize(api.context), abi::kSuccess);

    const ProcessSnapshot snapshot = ReadSnapshot();
    EXPECT_EQ(snapshot.nccl_api_version, TypeParam::kVersion);
    EXPECT_EQ(Ignored(snapshot), 0u);
    const CommunicatorSnapshot& measured = Find(snapshot, kCommId);
    EXPECT_EQ(measured.rank, 3);
    EXPECT_EQ(measured.name, "the name");
    EXPECT_EQ(measured.nranks, TypeParam::kVersion <= 3 ? 0 : 16);
    EXPECT_EQ(measured.nnodes, TypeParam::kVersion <= 3 ? 0 : 2);
    EXPECT_EQ(Calls(measured), 6u);
    EXPECT_EQ(Bytes(measured), 5 * kCount * 4 + kCount);
    ASSERT_EQ(measured.algorithms.size(), 1u);
    EXPECT_EQ(measured.algorithms[0].op, "AllReduce");
    EXPECT_EQ(measured.algorithms[0].algo, "RING");
    EXPECT_EQ(measured.algorithms[0].proto, "SIMPLE");
    EXPECT_EQ(measured.algorithms[0].operations, 5u);
    ASSERT_EQ(measured.sequences.size(), 1u);
    EXPECT_EQ(measured.sequences[0].sequence, 4u);
    EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), 5u);
  });
}

TYPED_TEST(VersionsTest, RootsAndPeers) {
  RunInChild({}, [] {
    TypeParam api;
    api.Init();
    auto reduce = api.Coll(0);
    TypeParam::Set(reduce.coll.func, 1, "Reduce");
    api.Call("Reduce", "ncclFloat32");
    api.Stop(api.Start(reduce));
    if constexpr (TypeParam::kVersion >= 5) {
      typename TypeParam::Descriptor event{};
      event.type = abi::kEventGroupApi;
      api.Start(event);
      event.type = abi::kEventP2pApi;
      event.p2pApi.func = "Send";
      event.p2pApi.datatype = "ncclInt8";
      api.Start(event);
    }
    api.Stop(api.Start(api.P2p()));
    const ProcessSnapshot snapshot = ReadSnapshot();
    const auto& calls = Find(snapshot, kCommId).last_calls;
    ASSERT_NE(calls, nullptr);
    ASSERT_EQ(calls->size(), 2u);
    EXPECT_EQ(calls->front().root, 2);
    EXPECT_EQ(calls->front().peer, -1);
    EXPECT_EQ(calls->back().root, -1);
    EXPECT_EQ(calls->back().peer, 1);
  });
}

// NCCL keeps one mask for the whole process, and every init writes it. What it may hold follows
// from version and timing alone.
TYPED_TEST(VersionsTest, MaskIsTheSameAtEveryInit) {
  for (const std::string timing : {"auto", "kernel", "off"}) {
    RunInChild({{"NCCL_PULSE_TIMING", timing}}, [&timing] {
      TypeParam first;
      CaptureStandardError([&] { first.Init(); });
      for (int i = 0; i < 3; ++i) {
        TypeParam next;
        next.mask = -1;
        next.Init();
        EXPECT_EQ(next.mask, first.mask);
        next.profiler.finalize(next.context);
      }
      const auto mask = static_cast<uint32_t>(first.mask);
      constexpr int kVersion = TypeParam::kVersion;
      uint32_t expected = abi::kEventColl | abi::kEventP2p;
      if (timing != "off") expected |= abi::kEventProxyOp;
      if (timing == "kernel" && kVersion >= 4) expected |= abi::kEventKernelCh;
      if (kVersion >= 5) {
        expected |=
            abi::kEventGroupApi | abi::kEventCollApi | abi::kEventP2pApi | abi::kEventKernelLaunch;
      }
      if (kVersion >= 6) expected |= abi::kEventCeColl;
      EXPECT_EQ(mask, expected) << timing;
      EXPECT_EQ(ReadSnapshot().event_mask, mask);
    });
  }
}

TYPED_TEST(VersionsTest, HandleIsWrittenForEveryType) {
  RunInChild({}, [] {
    TypeParam api;
    api.Init();
    for (int bit = 0; bit < 16; ++bit) {
      typename TypeParam::Descriptor event{};
      using Type = decltype(event.type);
      event.type = static_cast<Type>(1u << bit);
      if (event.type == 0) continue;  // v1 to v4 have 8 bits
      api.Start(event);
    }
  });
}

TYPED_TEST(VersionsTest, FinalizedContextAndNull) {
  RunInChild({}, [] {
    TypeParam api;
    api.Init();
    api.Stop(nullptr);
    EXPECT_EQ(api.profiler.recordEventState(nullptr, abi::kStateProxyOpInProgress, nullptr),
              abi::kSuccess);
    void* handle = &handle;
    EXPECT_EQ(api.profiler.startEvent(api.context, &handle, nullptr), abi::kSuccess);
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(api.profiler.finalize(api.context), abi::kSuccess);
    EXPECT_EQ(api.Start(api.Coll(0)), nullptr);
    EXPECT_EQ(api.profiler.finalize(api.context), abi::kSuccess);
    EXPECT_EQ(IgnoredByName(ReadSnapshot()),
              (std::map<std::string, uint64_t>{{"null_handle", TypeParam::kVersion <= 2 ? 1 : 2},
                                               {"missing_argument", 1},
                                               {"stale_context", 2}}));
  });
}

// v4 and later: a channel's GPU times. In v3 there are none, so kernel timing falls back.
TYPED_TEST(VersionsTest, KernelTiming) {
  RunInChild({{"NCCL_PULSE_TIMING", "kernel"}}, [] {
    TypeParam api;
    const std::string said = CaptureStandardError([&] { api.Init(); });
    constexpr int kVersion = TypeParam::kVersion;
    if constexpr (kVersion <= 3) {
      EXPECT_NE(said.find("NCCL_PULSE_TIMING=kernel"), std::string::npos) << said;
      EXPECT_NE(said.find("using auto"), std::string::npos) << said;
      EXPECT_EQ(ReadSnapshot().timing, "auto");
    } else {
      EXPECT_EQ(ReadSnapshot().timing, "kernel");
      void* coll = api.Start(api.Coll(0));
      typename TypeParam::Descriptor event{};
      event.type = abi::kEventKernelCh;
      event.parentObj = coll;
      event.kernelCh = {5, 1000};
      void* channel = api.Start(event);
      typename TypeParam::StateArgs args{};
      args.kernelCh.pTimer = 3000;
      api.profiler.recordEventState(channel, abi::kStateKernelChStop, &args);
      api.Stop(channel);
      const ProcessSnapshot snapshot = ReadSnapshot();
      EXPECT_EQ(Timed(Find(snapshot, kCommId), LatencyKind::kDurationKernel), 1u);
    }
  });
}

using V1 = ApiOf<1, abi::v1::Profiler, abi::v1::Descriptor, abi::v1::StateArgs>;
using V2 = ApiOf<2, abi::v2::Profiler, abi::v2::Descriptor, abi::v2::StateArgs>;
using V3 = ApiOf<3, abi::v3::Profiler, abi::v3::Descriptor, abi::v3::StateArgs>;
using V4 = ApiOf<4, abi::v4::Profiler, abi::v4::Descriptor, abi::v4::StateArgs>;

using V7 = ApiOf<7, abi::v7::Profiler, abi::v7::Descriptor, abi::v7::StateArgs>;

// As NCCL 2.31.2 reports a collective that a symmetric-memory kernel carries out.
TEST_IN_CHILD(NewVersionsTest, SymmetricKernelIsNamedAsAlgorithm) {
  V7 api;
  api.Init();
  static const char kVariant[] = "AllReduce_AGxLL_R";
  for (const bool symmetric : {true, true, false}) {
    abi::v7::Descriptor event = api.Coll(0);
    event.coll.nChannels = 0;
    event.coll.isSymColl = symmetric;
    if (symmetric) {
      event.coll.kernelVariant = kVariant;
      event.coll.algo = kVariant + strlen("AllReduce_");
      event.coll.proto = "";
    }
    api.Stop(api.Start(event));
  }
  std::map<std::string, uint64_t> counts;
  const ProcessSnapshot snapshot = ReadSnapshot();
  for (const AlgorithmCountSnapshot& count : Find(snapshot, kCommId).algorithms) {
    counts[count.algo + "/" + count.proto] = count.operations;
  }
  EXPECT_EQ(counts,
            (std::map<std::string, uint64_t>{{"AGxLL_R/SYMMETRIC", 2}, {"RING/SIMPLE", 1}}));
  EXPECT_EQ(Ignored(snapshot), 0u);
}

TEST_IN_CHILD(NewVersionsTest, KernelPhaseIsNotAskedFor, {"NCCL_PULSE_TIMING", "kernel"}) {
  V7 api;
  api.Init();
  EXPECT_EQ(api.mask & static_cast<int>(abi::kEventKernelPhase), 0);
  abi::v7::Descriptor event{};
  event.type = abi::kEventKernelPhase;
  event.parentObj = api.Start(api.Coll(0));
  EXPECT_EQ(api.Start(event), nullptr);
  EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kUnrequestedType), 1u);
}

TEST_IN_CHILD(OldVersionsTest, NumbersOutOfRange) {
  V1 api;
  api.Init();
  for (int number = 0; number < 256; ++number) {
    abi::v1::Descriptor event = api.Coll(0);
    event.coll.func = event.coll.datatype = event.coll.algo = event.coll.proto =
        static_cast<uint8_t>(number);
    api.Start(event);
    event = api.P2p();
    event.p2p.func = event.p2p.datatype = static_cast<uint8_t>(number);
    api.Start(event);
  }
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Calls(Find(snapshot, kCommId)), 512u);
  EXPECT_EQ(Operations(Find(snapshot, kCommId)), 256u);
  uint64_t unknown = 0;
  for (const CallCountSnapshot& count : Find(snapshot, kCommId).calls) {
    if (count.op == "Unknown") unknown += count.calls;
  }
  EXPECT_EQ(unknown, 2u * (256 - 8));
}

// Until its first operation nobody knows whose communicator it is.
TEST_IN_CHILD(OldVersionsTest, IdentityComesWithTheFirstOperation) {
  V3 api;
  api.Init();
  ASSERT_EQ(ReadSnapshot().communicators.size(), 1u);
  EXPECT_EQ(ReadSnapshot().communicators[0].comm_id, 0u);
  EXPECT_EQ(ReadSnapshot().communicators[0].rank, -1);
  abi::v3::Descriptor unnamed = api.Coll(0);  // as NCCL 2.30 calls a v3 plugin
  unnamed.coll.name = nullptr;
  unnamed.coll.commHash = 0;
  api.Start(unnamed);
  EXPECT_EQ(ReadSnapshot().communicators[0].comm_id, 0u);
  api.Start(api.P2p());
  EXPECT_EQ(ReadSnapshot().communicators[0].comm_id, kCommId);
  EXPECT_EQ(ReadSnapshot().communicators[0].rank, 3);
  EXPECT_EQ(ReadSnapshot().communicators[0].name, "the name");
  abi::v3::Descriptor other = api.Coll(1);
  other.coll.name = "another";
  other.coll.commHash = 77;
  api.Start(other);
  EXPECT_EQ(ReadSnapshot().communicators[0].comm_id, kCommId);
  EXPECT_EQ(Calls(ReadSnapshot().communicators[0]), 3u);
}

TEST_IN_CHILD(OldVersionsTest, ChannelsOfV3AreNotAskedFor) {
  V3 api;
  api.Init();
  abi::v3::Descriptor event{};
  event.type = abi::kEventKernelCh;
  event.parentObj = api.Start(api.Coll(0));
  EXPECT_EQ(api.Start(event), nullptr);
  EXPECT_EQ(Ignored(ReadSnapshot(), IgnoredReason::kUnrequestedType), 1u);
}

// Bytes behind the one that v1 to v4 call the type are padding, and may hold anything.
TEST_IN_CHILD(OldVersionsTest, PaddingBehindTheTypeIsNotRead) {
  V4 api;
  api.Init();
  abi::v4::Descriptor event = api.Coll(0);
  memset(reinterpret_cast<char*>(&event) + 1, 0xff, 7);
  EXPECT_NE(api.Start(event), nullptr);
  EXPECT_EQ(Ignored(ReadSnapshot()), 0u);
  EXPECT_EQ(Calls(Find(ReadSnapshot(), kCommId)), 1u);
}

}  // namespace
}  // namespace nccl_pulse
