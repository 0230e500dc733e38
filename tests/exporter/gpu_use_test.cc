// What NVML's samples make of a GPU on which a counter stands, over a stand-in for NVML.
#include "exporter/node/gpu_use.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/exporter/fake_nvml.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kOneSecond = 1000000000;
constexpr int64_t kMoved = 1760000000 * kOneSecond;
constexpr int64_t kHangAfter = 10 * kOneSecond;

template <typename Type>
Type& OfLibrary(const char* function) {
  void* const library = dlopen("tests/exporter/libnvidia-ml.so.1", RTLD_NOW);
  return *reinterpret_cast<Type* (*)()>(dlsym(library, function))();
}

FakeNvml& Nvml() {
  static FakeNvml& fake = OfLibrary<FakeNvml>("NcclPulseFakeNvml");
  return fake;
}

// Five samples a second, from three seconds before the counter moved last until 12 seconds after.
void Sample(unsigned before, unsigned first_second, unsigned after) {
  FakeNvml fake;
  for (int i = -15; i < 60; ++i) {
    const unsigned value = i < 0 ? before : i < 5 ? first_second : after;
    const auto time = static_cast<unsigned long long>(kMoved / 1000 + int64_t{200000} * i);
    fake.samples.push_back({time, value});
    fake.memory.push_back({time, i < 5 ? 20u : 0u});
  }
  Nvml() = fake;
}

SnapshotSet Standing(int64_t hang_after_ns = kHangAfter) {
  SnapshotSet set;
  CommunicatorSnapshot comm;
  comm.uuid = "GPU-1";
  comm.captured = true;
  comm.work.state = WorkState::kProven;
  comm.work.moved_realtime_ns = kMoved;
  set.processes.resize(1);
  set.processes[0].communicators = {comm};
  set.processes[0].hang_after_ns = hang_after_ns;
  return set;
}

GpuUse Ask(SnapshotSet set = Standing(), int64_t after_ns = 12 * kOneSecond) {
  GpuUses().Add(kMoved + after_ns, &set);
  return set.processes[0].communicators[0].work.gpu_use;
}

TEST(GpuUse, BySamplesSinceTheCounterMoved) {
  Sample(100, 60, 0);
  EXPECT_EQ(Ask(), GpuUse::kIdle);
  Sample(0, 60, 100);
  EXPECT_EQ(Ask(), GpuUse::kBusy);
  Sample(0, 0, 50);
  EXPECT_EQ(Ask(), GpuUse::kMixed);
  Nvml().samples.back().value = 0;
  EXPECT_EQ(Ask(), GpuUse::kMixed);
}

TEST(GpuUse, IsAskedWhileTheCounterIsBeingProven) {
  Sample(100, 60, 0);
  SnapshotSet set = Standing();
  set.processes[0].communicators[0].work.state = WorkState::kCalibrating;
  EXPECT_EQ(Ask(set), GpuUse::kIdle);
  set.processes[0].communicators[0].work.moved_realtime_ns = 0;
  EXPECT_EQ(Ask(set), GpuUse::kIdle);
}

TEST(GpuUse, QuietTimeBeforeDoesNotCount) {
  Sample(0, 0, 0);
  for (FakeNvml::Sample& sample : Nvml().samples) {
    if (sample.time_us >= (kMoved + 6 * kOneSecond) / 1000) sample.value = 100;
  }
  EXPECT_EQ(Ask(Standing(), 15 * kOneSecond), GpuUse::kMixed);
  EXPECT_EQ(Ask(Standing(), 16 * kOneSecond), GpuUse::kBusy);
}

// The driver keeps 14 s.
TEST(GpuUse, ALongerTimeIsSeenByAskingAgain) {
  constexpr int64_t kLong = 60 * kOneSecond;
  GpuUses uses;
  for (int64_t after = kLong; after <= 2 * kLong; after += 5 * kOneSecond) {
    FakeNvml fake;
    for (int i = 0; i < 70; ++i) {
      fake.samples.push_back(
          {static_cast<unsigned long long>((kMoved + after) / 1000 - int64_t{200000} * i), 100});
    }
    fake.memory = fake.samples;
    for (FakeNvml::Sample& sample : fake.memory) sample.value = 0;
    Nvml() = fake;
    SnapshotSet set = Standing(kLong);
    uses.Add(kMoved + after, &set);
    EXPECT_EQ(set.processes[0].communicators[0].work.gpu_use,
              after < kLong + 46 * kOneSecond ? GpuUse::kUnknown : GpuUse::kBusy)
        << after / kOneSecond;
  }
}

TEST(GpuUse, OneThatComputesUsesItsMemory) {
  Sample(0, 60, 100);
  Nvml().memory.back().value = 22;
  EXPECT_EQ(Ask(), GpuUse::kMixed);
  Nvml().memory.clear();
  EXPECT_EQ(Ask(), GpuUse::kUnknown);
}

TEST(GpuUse, OneBusyMomentIsNotIdle) {
  Sample(0, 0, 0);
  Nvml().samples.back().value = 30;
  EXPECT_EQ(Ask(), GpuUse::kMixed);
}

TEST(GpuUse, SharedWithOtherProcesses) {
  Sample(0, 0, 0);
  Nvml().processes = 2;
  EXPECT_EQ(Ask(), GpuUse::kShared);
}

TEST(GpuUse, OfAllGpusOfTheHost) {
  Sample(0, 0, 100);
  const std::vector<HostGpu> gpus = GpuUses().OfHost(kMoved + 2 * kOneSecond);
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].index, 0);
  EXPECT_EQ(gpus[0].use, GpuUse::kBusy);
  EXPECT_EQ(gpus[0].pids, (std::vector<int32_t>{1000}));
  Nvml().processes = 2;
  EXPECT_EQ(GpuUses().OfHost(kMoved + 2 * kOneSecond)[0].use, GpuUse::kBusy);  // of both together
  EXPECT_EQ(GpuUses().OfHost(kMoved)[0].pids, (std::vector<int32_t>{1000, 1001}));
  Nvml().processes = 0;  // it was killed
  EXPECT_TRUE(GpuUses().OfHost(kMoved)[0].pids.empty());
}

TEST(GpuUse, UnknownGpuAndTooFewSamples) {
  Sample(0, 0, 0);
  Nvml().uuid = "GPU-2";
  EXPECT_EQ(Ask(), GpuUse::kUnknown);
  Sample(0, 0, 0);
  Nvml().samples.resize(25);
  EXPECT_EQ(Ask(), GpuUse::kUnknown);
}

TEST(GpuUse, NotAskedUnlessACounterStandsOrTellsNothing) {
  Sample(0, 0, 0);
  EXPECT_EQ(Ask(Standing(), kHangAfter - 1), GpuUse::kUnknown);
  for (const auto& change : std::vector<void (*)(SnapshotSet*)>{
           [](SnapshotSet* set) { set->processes[0].communicators[0].captured = false; },
           [](SnapshotSet* set) { set->processes[0].communicators[0].finalized = true; },
           [](SnapshotSet* set) {
             set->processes[0].communicators[0].work.state = WorkState::kOff;
           },
           [](SnapshotSet* set) { set->processes[0].end = ProcessEnd::kLost; }}) {
    SnapshotSet set = Standing();
    change(&set);
    EXPECT_EQ(Ask(set), GpuUse::kUnknown);
  }
  EXPECT_EQ(Nvml().asked, 0);
}

TEST(GpuUse, OnceASecond) {
  Sample(0, 0, 0);
  GpuUses uses;
  for (int i = 0; i < 10; ++i) {
    SnapshotSet set = Standing();
    uses.Add(kMoved + 12 * kOneSecond + i * kOneSecond / 10, &set);
    EXPECT_EQ(set.processes[0].communicators[0].work.gpu_use, GpuUse::kIdle);
  }
  EXPECT_EQ(Nvml().asked, 1);
}

// A GPU that has fallen off the bus lets NVML wait for minutes: the page must not.
TEST(GpuUse, ADriverThatHangsKeepsNobodyWaiting) {
  Sample(0, 0, 0);
  auto& hangs = OfLibrary<FakeNvmlHangs>("NcclPulseFakeNvmlHangs");
  GpuUses uses;
  int64_t after = 12 * kOneSecond;
  const auto ask = [&] {
    SnapshotSet set = Standing();
    uses.Add(kMoved + after, &set);
    return set.processes[0].communicators[0].work.gpu_use;
  };
  EXPECT_EQ(ask(), GpuUse::kIdle);
  hangs = true;
  after += kOneSecond;
  EXPECT_EQ(ask(), GpuUse::kIdle);  // the last answer is two seconds old at most
  after += 5 * kOneSecond;
  EXPECT_EQ(ask(), GpuUse::kUnknown);
  EXPECT_TRUE(uses.OfHost(kMoved).empty());
  hangs = false;
  for (after += kOneSecond; ask() == GpuUse::kUnknown;) std::this_thread::yield();
  EXPECT_EQ(Nvml().asked, 3);
}

TEST(GpuUse, AnAnswerThatCameTooLateCountsNextTime) {
  Sample(0, 0, 0);
  auto& hangs = OfLibrary<FakeNvmlHangs>("NcclPulseFakeNvmlHangs");
  GpuUses uses;
  const auto ask = [&](int64_t after) {
    SnapshotSet set = Standing();
    uses.Add(kMoved + after, &set);
    return set.processes[0].communicators[0].work.gpu_use;
  };
  hangs = true;
  EXPECT_EQ(ask(12 * kOneSecond), GpuUse::kUnknown);
  hangs = false;
  while (uses.OfHost(kMoved).empty()) std::this_thread::yield();
  hangs = true;
  EXPECT_EQ(ask(13 * kOneSecond), GpuUse::kIdle);
  hangs = false;
  while (uses.OfHost(kMoved).empty()) std::this_thread::yield();
}

}  // namespace
}  // namespace nccl_pulse
