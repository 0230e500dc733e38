// NCCL_PULSE_NEXT_PLUGIN: another profiler gets the calls that NCCL would make to it, and ours does
// not notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "plugin/abi/profiler_v3.h"
#include "plugin/abi/profiler_v7.h"
#include "tests/plugin/harness.h"
#include "tests/plugin/next_profiler.h"
#include "tests/plugin/older_api.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kNextV5[] = "tests/plugin/libnext_v5.so";
constexpr char kNextV4[] = "tests/plugin/libnext_v4.so";
constexpr char kNextV7[] = "tests/plugin/libnext_v7.so";
constexpr int kAll = 0xffff;

NextNotes& Notes(const char* path) {
  return *static_cast<NextNotes*>(FindSymbol(path, "next_notes"));
}

// Types of the events that were started.
std::vector<uint64_t> Started(const NextNotes& notes) {
  std::vector<uint64_t> types;
  for (const NextCall& call : notes.calls) {
    if (call.what == NextCall::kStart) types.push_back(call.type);
  }
  return types;
}
const NextCall& Only(const NextNotes& notes, NextCall::What what, uint64_t type = 0) {
  const NextCall* found = nullptr;
  for (const NextCall& call : notes.calls) {
    if (call.what != what || call.type != type) continue;
    EXPECT_EQ(found, nullptr);
    found = &call;
  }
  if (found == nullptr) abort();
  return *found;
}

TEST_IN_CHILD(NextPlugin, GetsItsContextHandlesAndParents, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = kAll;
  NcclCommunicator communicator(0xc0);
  EXPECT_THAT(TakeLog(), Contains(HasSubstr("NCCL_PULSE_NEXT_PLUGIN: Next is also called (profiler "
                                            "API v5, event mask 0xfff)")));
  void* const context = Only(notes, NextCall::kInit).context;
  communicator.RunWithProxy(1);
  const NextCall& call = Only(notes, NextCall::kStart, abi::kEventCollApi);
  const NextCall& coll = Only(notes, NextCall::kStart, abi::kEventColl);
  const NextCall& proxy = Only(notes, NextCall::kStart, abi::kEventProxyOp);
  EXPECT_EQ(call.context, context);
  EXPECT_EQ(coll.parent, call.handle);
  EXPECT_EQ(proxy.parent, coll.handle);
  const NextCall& record = Only(notes, NextCall::kRecord);
  EXPECT_EQ(record.handle, proxy.handle);
  EXPECT_EQ(record.state, abi::kStateProxyOpInProgress);
  std::vector<void*> stopped;
  for (const NextCall& each : notes.calls) {
    if (each.what == NextCall::kStop) stopped.push_back(each.handle);
  }
  const NextCall& launch = Only(notes, NextCall::kStart, abi::kEventKernelLaunch);
  EXPECT_THAT(stopped, ElementsAre(call.handle, launch.handle, coll.handle, proxy.handle));
  communicator.Finalize();
  EXPECT_EQ(Only(notes, NextCall::kFinalize).context, context);
  // Ours has measured as if it were alone.
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Calls(Find(snapshot, 0xc0)), 1u);
  EXPECT_EQ(Operations(Find(snapshot, 0xc0)), 1u);
  EXPECT_EQ(Timed(Find(snapshot, 0xc0), LatencyKind::kCompletionProxy), 1u);
  EXPECT_THAT(IgnoredByName(snapshot), IsEmpty());
}

TEST_IN_CHILD(NextPlugin, EitherGetsWhatItsMaskBrings, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = static_cast<int>(abi::kEventKernelCh);
  NcclCommunicator communicator(0xc0);
  const int mask = NcclCommunicator::event_mask();
  EXPECT_NE(mask & static_cast<int>(abi::kEventKernelCh), 0);
  EXPECT_NE(mask & static_cast<int>(abi::kEventKernelLaunch), 0);
  communicator.RunWithKernel(2, 1000, 2000);
  // KernelCh brings calls and operations; launches are ours alone.
  EXPECT_THAT(Started(notes), ElementsAre(abi::kEventCollApi, abi::kEventColl, abi::kEventKernelCh,
                                          abi::kEventKernelCh));
  EXPECT_EQ(std::count_if(notes.calls.begin(), notes.calls.end(),
                          [](const auto& each) { return each.state == abi::kStateKernelChStop; }),
            2);
  EXPECT_THAT(IgnoredByName(ReadSnapshot()), IsEmpty());
  // It takes events back.
  notes.calls.clear();
  *notes.its_mask = 0;
  communicator.RunWithKernel(2, 1000, 2000);
  EXPECT_THAT(Started(notes), IsEmpty());
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Calls(Find(snapshot, 0xc0)), 2u);
  // No durations by timestamps, which nobody asked us for.
  EXPECT_EQ(Timed(Find(snapshot, 0xc0), LatencyKind::kDurationKernel), 0u);
  EXPECT_EQ(snapshot.event_mask & abi::kEventKernelCh, 0u);
}

TEST_IN_CHILD(NextPlugin, StepsAreOursInOurWindowAlone, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5},
              {"NCCL_PULSE_NETWORK_WINDOW", "off"}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = static_cast<int>(abi::kEventProxyStep);
  NcclCommunicator communicator(0xc0);
  EXPECT_NE(NcclCommunicator::event_mask() & static_cast<int>(abi::kEventProxyStep), 0);
  EXPECT_NE(NcclCommunicator::event_mask() & static_cast<int>(abi::kEventKernelLaunch), 0);
  void* const coll = communicator.Enqueue();
  void* const proxy = Start(communicator.context(), ProxyOpEvent(coll, getpid()));
  void* const step = Start(communicator.context(), StepEvent(proxy));
  RecordStep(step, abi::kStateProxyStepSendWait, 4096);
  Stop(step);
  EXPECT_EQ(Only(notes, NextCall::kStart, abi::kEventProxyStep).parent,
            Only(notes, NextCall::kStart, abi::kEventProxyOp).handle);
  EXPECT_EQ(Only(notes, NextCall::kRecord).state, abi::kStateProxyStepSendWait);
  EXPECT_THAT(IgnoredByName(ReadSnapshot()), IsEmpty());
}

// As NCCL's own adapter for v4: an operation belongs to its group, and calls are unknown.
TEST_IN_CHILD(NextPlugin, AnOlderOneGetsItsVersion, {"NCCL_PULSE_NEXT_PLUGIN", kNextV4}) {
  NextNotes& notes = Notes(kNextV4);
  notes.mask = kAll;
  NcclCommunicator communicator(0xc0);
  EXPECT_THAT(TakeLog(), Contains(HasSubstr("profiler API v4, event mask 0xff")));
  Descriptor group{};
  group.type = abi::kEventGroup;
  void* const group_handle = Start(communicator.context(), group);
  void* const call = Start(communicator.context(), CallEvent("AllReduce", 1024, "ncclFloat32"));
  Descriptor coll = CollEvent(call, 0, 2);
  coll.coll.parentGroup = group_handle;
  Start(communicator.context(), coll);
  EXPECT_THAT(Started(notes), ElementsAre(abi::kEventGroup, abi::kEventColl));
  EXPECT_EQ(notes.calls.back().parent, Only(notes, NextCall::kStart, abi::kEventGroup).handle);
}

// An operation's parent is its Group. Without a handle for the Group, NCCL omits the operation
// (ncclProfilerStartTaskEvents, 2.27.7).
TEST(NextPlugin, BothGetTheOperationsOfAnOlderNccl) {
  for (const NextManner manner : {NextManner::kGood, NextManner::kNoHandles}) {
    RunInChild({{"NCCL_PULSE_NEXT_PLUGIN", kNextV4}}, [manner] {
      NextNotes& notes = Notes(kNextV4);
      notes.manner = manner;
      notes.mask = kAll;
      OlderCommunicator communicator(0xc0);
      communicator.Stop(communicator.StartProxyOp(communicator.Enqueue()));
      EXPECT_THAT(Started(notes),
                  ElementsAre(abi::kEventGroup, abi::kEventColl, abi::kEventProxyOp));
      const NextCall& coll = Only(notes, NextCall::kStart, abi::kEventColl);
      EXPECT_EQ(coll.parent, Only(notes, NextCall::kStart, abi::kEventGroup).handle);
      EXPECT_EQ(Only(notes, NextCall::kStart, abi::kEventProxyOp).parent, coll.handle);
      EXPECT_EQ(Calls(Find(ReadSnapshot(), 0xc0)), 1u);
      EXPECT_THAT(IgnoredByName(ReadSnapshot()), IsEmpty());
    });
  }
}

TEST_IN_CHILD(NextPlugin, ANewerNcclHasTheSameLayout, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = kAll;
  static int mask = 0;
  void* context = nullptr;
  const auto& profiler = ProfilerOf<abi::v7::Profiler>(7);
  profiler.init(&context, 0xc7, &mask, "new", 1, 2, 0, Logger);
  for (const uint64_t type : {abi::kEventCollApi, abi::kEventCeColl, abi::kEventKernelPhase}) {
    abi::v7::Descriptor event{};
    event.type = type;
    if (type == abi::kEventCollApi) {
      event.collApi.func = "AllReduce";
      event.collApi.datatype = "ncclInt8";
    }
    void* handle = &event;
    profiler.startEvent(context, &handle, &event);
    EXPECT_NE(handle, &event);
  }
  EXPECT_THAT(Started(notes), ElementsAre(abi::kEventCollApi));
}

// NCCL sets the bit of KernelCh if a plugin asks for KernelPhase.
TEST_IN_CHILD(NextPlugin, PhasesBringWhatTheyBelongTo, {"NCCL_PULSE_NEXT_PLUGIN", kNextV7}) {
  NextNotes& notes = Notes(kNextV7);
  notes.mask = static_cast<int>(abi::kEventKernelPhase);
  static int mask = 0;
  void* context = nullptr;
  const auto& profiler = ProfilerOf<abi::v7::Profiler>(7);
  profiler.init(&context, 0xc7, &mask, "new", 1, 2, 0, Logger);
  const uint32_t asked = abi::kEventKernelPhase | abi::kEventKernelCh;
  EXPECT_EQ(static_cast<uint32_t>(mask) & asked, asked);
  for (const uint64_t type : {abi::kEventKernelLaunch, abi::kEventColl, abi::kEventKernelCh,
                              abi::kEventKernelPhase, abi::kEventCeColl}) {
    abi::v7::Descriptor event{};
    event.type = type;
    event.parentObj = context;
    void* handle = nullptr;
    profiler.startEvent(context, &handle, &event);
  }
  EXPECT_THAT(Started(notes),
              ElementsAre(abi::kEventColl, abi::kEventKernelCh, abi::kEventKernelPhase));
}

TEST_IN_CHILD(NextPlugin, OtherProcessesHandlesAreNull, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = kAll;
  NcclCommunicator communicator(0xc0);
  auto* const foreign = reinterpret_cast<void*>(0x1234'8765'4321'0000);  // NOLINT
  Start(foreign, ProxyOpEvent(foreign, getpid() + 1));
  const NextCall proxy = Only(notes, NextCall::kStart, abi::kEventProxyOp);
  EXPECT_EQ(proxy.context, nullptr);
  EXPECT_EQ(proxy.parent, nullptr);
  // Its steps are this process' own.
  Start(foreign, StepEvent(proxy.handle));
  EXPECT_EQ(Only(notes, NextCall::kStart, abi::kEventProxyStep).parent, proxy.handle);
  // Nothing is passed on of a context that nobody knows.
  notes.calls.clear();
  Start(foreign, CallEvent("AllReduce", 1, "ncclInt8"));
  Stop(foreign);
  EXPECT_THAT(notes.calls, IsEmpty());
}

TEST_IN_CHILD(NextPlugin, OldHandlesGoToNobody, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = kAll;
  NcclCommunicator communicator(0xc0);
  void* const first = Start(communicator.context(), LaunchEvent());
  notes.is_quiet = true;
  for (int i = 0; i < (1 << 16) + 1; ++i) {
    void* const proxy = Start(communicator.context(), ProxyOpEvent(nullptr, getpid()));
    Stop(proxy);
  }
  notes.is_quiet = false;
  Stop(first);
  EXPECT_LE(notes.calls.size(), 3u);  // init, the launch; its stop if it was no pair
}

TEST(NextPlugin, WhateverItDoesOursMeasures) {
  for (const NextManner manner :
       {NextManner::kFailsInit, NextManner::kThrows, NextManner::kStrangeHandles,
        NextManner::kNoHandles, NextManner::kScribbles}) {
    RunInChild({{"NCCL_PULSE_NEXT_PLUGIN", kNextV5}}, [manner] {
      NextNotes& notes = Notes(kNextV5);
      notes.manner = manner;
      notes.mask = kAll;
      {
        NcclCommunicator first(0xc0), second(0xc1);
        const std::vector<std::string> log = TakeLog();
        const bool is_taken = manner != NextManner::kFailsInit && manner != NextManner::kThrows;
        EXPECT_EQ(std::count_if(log.begin(), log.end(),
                                [](const auto& line) {
                                  return line.find("its init failed") != std::string::npos;
                                }),
                  is_taken ? 0 : 1);
        for (NcclCommunicator* each : {&first, &second}) {
          each->RunWithProxy(3);
          each->Finalize();
          each->Finalize();
        }
        if (!is_taken) {
          EXPECT_THAT(notes.calls, IsEmpty());
        }
        if (manner == NextManner::kStrangeHandles) {
          // They came back as they were given out.
          for (const NextCall& call : notes.calls) {
            if (call.what == NextCall::kStop) {
              EXPECT_GT(reinterpret_cast<uintptr_t>(call.handle), 0xfff8123456789abcULL);
            }
          }
        }
      }
      const ProcessSnapshot snapshot = ReadSnapshot();
      for (const uint64_t comm_id : {0xc0, 0xc1}) {
        EXPECT_EQ(Operations(Find(snapshot, comm_id)), 1u);
        EXPECT_EQ(Timed(Find(snapshot, comm_id), LatencyKind::kCompletionProxy), 1u);
      }
    });
  }
}

TEST(NextPlugin, WhatCannotBeLoadedIsNamed) {
  const std::map<std::string, std::string> wrong = {
      {"/no/such/library.so", "cannot open shared object file"},
      {"libc.so.6", "the library exports no complete ncclProfiler_v1 to v7"},
      {kLibrary, "this is NCCL Pulse itself"}};
  for (const auto& [path, why] : wrong) {
    RunInChild({{"NCCL_PULSE_NEXT_PLUGIN", path}}, [&why = why] {
      NcclCommunicator communicator(0xc0), another(0xc1);
      std::vector<std::string> log = TakeLog();
      log.erase(std::remove_if(log.begin(), log.end(),
                               [](const auto& line) {
                                 return line.find("NCCL_PULSE_NEXT_PLUGIN") == std::string::npos;
                               }),
                log.end());
      EXPECT_THAT(log, ElementsAre(HasSubstr(why)));
      communicator.RunWithProxy();
      EXPECT_EQ(Calls(Find(ReadSnapshot(), 0xc0)), 1u);
    });
  }
}

TEST_IN_CHILD(NextPlugin, AnOtherVersionIsNamed, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  static int mask = 0;
  void* context = nullptr;
  const std::string said =
      CaptureStandardError([&] { ProfilerOf<abi::v3::Profiler>(3).init(&context, &mask); });
  EXPECT_THAT(said, HasSubstr("it has profiler API v5, but this NCCL needs v3"));
  EXPECT_NE(mask, 0);
  EXPECT_THAT(notes.calls, IsEmpty());
}

TEST_IN_CHILD(NextPlugin, FromManyThreads, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = kAll;
  notes.is_quiet = true;
  NcclCommunicator communicator(0xc0);
  constexpr int kThreads = 4, kRounds = 5000;
  Threads(kThreads, [&](int) {
    NcclCommunicator own(0x100);
    for (int round = 0; round < kRounds; ++round) own.RunWithProxy(1);
    own.Finalize();
  }).Join();
  // Start, record of the ProxyOp, and stop of four events a round; two of init and finalize.
  EXPECT_EQ(notes.count, 1u + kThreads * (2u + 9u * kRounds));
}

TEST_IN_CHILD(NextPlugin, AChildGoesOn, {"NCCL_PULSE_NEXT_PLUGIN", kNextV5}) {
  NextNotes& notes = Notes(kNextV5);
  notes.mask = kAll;
  NcclCommunicator communicator(0xc0);
  const pid_t child = fork();
  if (child == 0) {
    communicator.Enqueue();
    NcclCommunicator another(0xc1);
    another.RunWithProxy();
    another.Finalize();
    _exit(Calls(Find(ReadSnapshot(), 0xc1)) == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace nccl_pulse
