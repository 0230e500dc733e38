// What the background thread's look at the launches costs: one round over 16 communicators, with
// driver calls that take what an H200's host was measured to take.
// ./bazelw run -c opt //bench:poll
//
// Share of a core: the round's time over the 20 ms between two. The goal is 0.5 %, or 100 us.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "plugin/clock.h"
#include "plugin/tracker.h"

namespace nccl_pulse::bench {
namespace {

constexpr int kCommunicators = 16;
constexpr uint64_t kQueryNs = 1200;
constexpr uint64_t kElapsedNs = 45;
constexpr uint64_t kSetCurrentNs = 50;

uint64_t queries = 0;
// How many events, of all, the GPU has still to reach.
bool gpu_is_behind = false;

void Spin(uint64_t ns) {
  const uint64_t end = Clock::MonotonicNs() + ns;
  while (Clock::MonotonicNs() < end) {
  }
}

CudaDriver SlowDriver() {
  CudaDriver driver{};
  driver.context_get_current = [](CudaContext* context) {
    *context = &queries;
    return kCudaSuccess;
  };
  driver.context_set_current = [](CudaContext) {
    Spin(kSetCurrentNs);
    return kCudaSuccess;
  };
  driver.context_get_device = [](int* device) {
    *device = 0;
    return kCudaSuccess;
  };
  driver.context_get_id = [](CudaContext, uint64_t* id) {
    *id = 1;
    return kCudaSuccess;
  };
  driver.event_create = [](CudaEvent* event, unsigned) {
    *event = new int(0);
    return kCudaSuccess;
  };
  driver.event_destroy = [](CudaEvent event) {
    delete static_cast<int*>(event);
    return kCudaSuccess;
  };
  // An event knows how often it was looked at since it was recorded.
  driver.event_record = [](CudaEvent event, CudaStream) {
    *static_cast<int*>(event) = 0;
    return kCudaSuccess;
  };
  driver.event_query = [](CudaEvent event) {
    Spin(kQueryNs);
    ++queries;
    // Steady load: what was recorded before the last look is complete, the newest is not.
    return gpu_is_behind && (*static_cast<int*>(event))++ == 0 ? kCudaNotReady : kCudaSuccess;
  };
  driver.event_elapsed_time = [](float* milliseconds, CudaEvent, CudaEvent) {
    Spin(kElapsedNs);
    *milliseconds = 0.01F;
    return kCudaSuccess;
  };
  driver.stream_is_capturing = [](CudaStream, int* status) {
    *status = kCudaNotCapturing;
    return kCudaSuccess;
  };
  return driver;
}

// 10,000 launches a second in all: 200 between two looks, which two of them time.
void PollRound(benchmark::State& state, bool busy, bool behind) {
  gpu_is_behind = behind;
  std::string warning;
  const std::unique_ptr<Segment> segment = Segment::Create({}, &warning);
  Clock clock;
  clock.Initialize(ClockSource::kAuto);
  const CudaDriver driver = SlowDriver();
  const auto tracker = std::make_unique<Tracker>(*segment, clock, TimingMode::kAuto, &driver,
                                                 static_cast<int32_t>(getpid()), 1);
  segment->PopulatePages(1024, 1024);
  std::vector<uint64_t> contexts;
  for (uint64_t i = 0; i < kCommunicators; ++i) {
    contexts.push_back(tracker->AddCommunicator(
        {i + 1, "bench", 0, 8, 1, "0", "", "", 0, /*launches_visible=*/true}));
  }
  const auto launch = [&](uint64_t context) {
    const uint64_t group = tracker->StartGroup(context, false);
    tracker->StartCall(context, {"AllReduce", "ncclFloat32", 1024, false, group});
    tracker->Stop(tracker->StartLaunch(context, {nullptr, group}));
  };
  uint64_t rounds = 0;
  queries = 0;
  for (auto _ : state) {
    state.PauseTiming();
    if (busy) {
      for (int i = 0; i < 200; ++i) launch(contexts[static_cast<size_t>(i) % kCommunicators]);
    }
    const timespec pause{0, 1000000};
    nanosleep(&pause, nullptr);
    ++rounds;
    if (rounds % 50 == 0) tracker->AdaptSampling();
    state.ResumeTiming();
    benchmark::DoNotOptimize(tracker->PollLaunches());
  }
  state.counters["queries"] = static_cast<double>(queries) / static_cast<double>(rounds);
}
BENCHMARK_CAPTURE(PollRound, Idle, false, false)->Iterations(500)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PollRound, Busy, true, false)->Iterations(500)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PollRound, BusyAndBehind, true, true)
    ->Iterations(500)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nccl_pulse::bench

BENCHMARK_MAIN();
