// Communicators that come and go, and the library with them.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "metrics/segment_layout.h"
#include "tests/plugin/harness.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

TEST_IN_CHILD(LifetimeTest, ThreeHundredInTurnWhileOthersRun) {
  constexpr uint64_t kTurns = 300;
  constexpr uint64_t kOthers = 2;
  std::atomic<bool> end{false};
  uint64_t operations[kOthers] = {};
  Threads threads(kOthers, [&](uint64_t other) {
    NcclCommunicator comm(10000 + other);
    do {
      comm.RunWithProxy();
      ++operations[other];
    } while (!end);
    comm.Finalize();
  });
  for (uint64_t turn = 1; turn <= kTurns; ++turn) {
    NcclCommunicator comm(turn);
    for (uint64_t i = 0; i < turn % 7 + 1; ++i) comm.RunWithProxy();
    comm.Finalize();
  }
  end = true;
  threads.Join();
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(snapshot.communicators.size(), kTurns + kOthers);
  for (uint64_t turn = 1; turn <= kTurns; ++turn) {
    const CommunicatorSnapshot& measured = Find(snapshot, turn);
    EXPECT_EQ(Calls(measured), turn % 7 + 1);
    EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), turn % 7 + 1);
    EXPECT_TRUE(measured.finalized);
  }
  for (uint64_t other = 0; other < kOthers; ++other) {
    const CommunicatorSnapshot& measured = Find(snapshot, 10000 + other);
    EXPECT_EQ(Operations(measured), operations[other]);
    EXPECT_EQ(Timed(measured, LatencyKind::kCompletionProxy), operations[other]);
  }
  EXPECT_EQ(Ignored(snapshot), 0u);
}

// All are made first and then used at once, as jobs do: each finds what it needs.
TEST_IN_CHILD(LifetimeTest, MoreThanThereIsRoomForAtATime, {"NCCL_PULSE_SERIES_LIMIT", "8192"}) {
  std::vector<std::unique_ptr<NcclCommunicator>> communicators;
  for (uint64_t id = 1; id <= kMaxCommunicators + 5; ++id) {
    communicators.push_back(std::make_unique<NcclCommunicator>(id));
    EXPECT_EQ(communicators.back()->context() != nullptr, id <= kMaxCommunicators);
    EXPECT_EQ(communicators.back()->event_mask(), communicators.front()->event_mask());
  }
  int warnings = 0;
  for (const std::string& line : TakeLog()) {
    if (line.find("1024 communicators") != std::string::npos) ++warnings;
  }
  EXPECT_EQ(warnings, 1);
  for (const auto& communicator : communicators) communicator->RunWithProxy();
  // Room again: the next one takes the place of one that has ended.
  communicators[0]->Finalize();
  NcclCommunicator next(7777);
  ASSERT_NE(next.context(), nullptr);
  next.RunWithProxy();
  const ProcessSnapshot snapshot = next.FinalizeAndRead();
  EXPECT_EQ(snapshot.communicators.size(), size_t{kMaxCommunicators});
  EXPECT_EQ(snapshot.unmeasured_communicators, 5u);
  EXPECT_EQ(Calls(Find(snapshot, 7777)), 1u);
  EXPECT_EQ(Timed(Find(snapshot, 7777), LatencyKind::kCompletionProxy), 1u);
  for (uint64_t id = 2; id <= kMaxCommunicators; ++id) {
    EXPECT_EQ(Calls(Find(snapshot, id)), 1u);
  }
  for (uint64_t id = 2; id <= kMaxCommunicators; ++id) communicators[id - 1]->Finalize();
  const ProcessSnapshot ended = ReadSnapshot();
  for (uint64_t id = 2; id <= kMaxCommunicators; ++id) {
    EXPECT_EQ(Timed(Find(ended, id), LatencyKind::kCompletionProxy), 1u);
    EXPECT_EQ(Find(ended, id).overflowed_operations, 0u);
  }
}

TEST_IN_CHILD(LifetimeTest, DlcloseAndDlopen) {
  uint64_t operations = 0;
  for (uint64_t id = 1; id <= 20; ++id) {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    const auto& profiler = *static_cast<abi::v5::Profiler*>(dlsym(library, "ncclProfiler_v5"));
    void* context = nullptr;
    int mask = 0;
    profiler.init(&context, id, &mask, "c", 1, 2, 0, nullptr);
    for (uint64_t i = 0; i < id; ++i) {
      Descriptor event = CallEvent("AllReduce", 1, "ncclInt8");
      void* handle = nullptr;
      profiler.startEvent(context, &handle, &event);
      ++operations;
    }
    profiler.finalize(context);
    EXPECT_EQ(dlclose(library), 0);
    // Its threads go on, and so must the code that they run.
    const int64_t poll_ns = ReadSnapshot().last_poll_realtime_ns;
    if (id == 1) {
      EXPECT_TRUE(WaitUntil([&] { return ReadSnapshot().last_poll_realtime_ns > poll_ns; }));
    }
  }
  const ProcessSnapshot snapshot = ReadSnapshot();
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(Calls(Find(snapshot, id)), id);
  EXPECT_EQ(snapshot.callbacks[static_cast<size_t>(CallbackKind::kApi)], operations);
}

// NCCL's libraries may be loaded anew at other addresses, or at the same with other texts there.
TEST_IN_CHILD(LifetimeTest, StringsMayChangeAfterTheLastFinalize) {
  char name[16] = "AllReduce";
  NcclCommunicator first(1);
  Start(first.context(), CallEvent(name, 1, "ncclInt8"));
  first.Finalize();
  snprintf(name, sizeof(name), "Broadcast");
  NcclCommunicator second(2);
  Start(second.context(), CallEvent(name, 1, "ncclInt8"));
  const ProcessSnapshot snapshot = second.FinalizeAndRead();
  ASSERT_EQ(Find(snapshot, 2).calls.size(), 1u);
  EXPECT_EQ(Find(snapshot, 1).calls[0].op, "AllReduce");
  EXPECT_EQ(Find(snapshot, 2).calls[0].op, "Broadcast");
}

// The job ends without ncclCommDestroy, while everything is under way.
TEST_WITH_COMM(LifetimeTest, ExitWithoutFinalize) {
  std::thread([&comm] {
    while (true) comm.RunWithProxy();
  }).detach();
  EXPECT_TRUE(WaitUntil([] { return Calls(Find(ReadSnapshot(), 1)) > 1000; }));
  exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace
}  // namespace nccl_pulse
