// Cost of a round of the background thread, at 10,000 launches per second on 16 communicators.
// Driver calls take as long as measured on an H200's host.
// ./bazelw run -c opt //bench:poll -- [--record_ns=100] [--timed_record_ns=2900] [--query_ns=1200]
//     [--elapsed_ns=45] [--set_current_ns=50]
//
// core_percent: mean round over the 20 ms between two rounds, in percent of one core. Goal: 0.5.
// launch_ns: what a launch's callbacks cost the launching thread meanwhile, driver included.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plugin/tracker/clock.h"
#include "plugin/tracker/eager_callbacks.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse::bench {
namespace {

constexpr int kCommunicators = 16;
constexpr int kLaunchesPerRound = 200;
constexpr uint64_t kPollNs = 20000000;
constexpr int kRoundsPerSecond = 50;

// Durations of the driver's calls.
struct DriverCosts {
  uint64_t record_ns = 100;
  uint64_t timed_record_ns = 2900;
  uint64_t query_ns = 1200;
  uint64_t elapsed_ns = 45;
  uint64_t set_current_ns = 50;
};
DriverCosts costs;

uint64_t queries = 0;
// True if the newest event is never complete at its first query.
bool gpu_is_behind = false;

struct Event {
  bool timing;
  int looks = 0;  // queries since it was recorded
};

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
    Spin(costs.set_current_ns);
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
  driver.event_create = [](CudaEvent* event, unsigned flags) {
    *event = new Event{flags == kCudaEventTiming};
    return kCudaSuccess;
  };
  driver.event_destroy = [](CudaEvent event) {
    delete static_cast<Event*>(event);
    return kCudaSuccess;
  };
  driver.event_record = [](CudaEvent event, CudaStream) {
    auto* recorded = static_cast<Event*>(event);
    Spin(recorded->timing ? costs.timed_record_ns : costs.record_ns);
    recorded->looks = 0;
    return kCudaSuccess;
  };
  driver.event_query = [](CudaEvent event) {
    Spin(costs.query_ns);
    ++queries;
    return gpu_is_behind && static_cast<Event*>(event)->looks++ == 0 ? kCudaNotReady : kCudaSuccess;
  };
  driver.event_elapsed_time = [](float* milliseconds, CudaEvent, CudaEvent) {
    Spin(costs.elapsed_ns);
    *milliseconds = 0.01F;
    return kCudaSuccess;
  };
  driver.stream_is_capturing = [](CudaStream, int* status) {
    *status = kCudaNotCapturing;
    return kCudaSuccess;
  };
  return driver;
}

void PollRound(benchmark::State& state, bool busy, bool behind) {
  gpu_is_behind = behind;
  std::string warning;
  const std::unique_ptr<Segment> segment = Segment::Create({}, &warning);
  Clock clock;
  clock.Initialize(ClockSource::kAuto);
  const CudaDriver driver = SlowDriver();
  const auto tracker = std::make_unique<Tracker>(*segment, clock, TimingMode::kAuto, &driver,
                                                 static_cast<int32_t>(getpid()), 1, 100);
  segment->PopulateChunks(1024, 1024);
  std::vector<uint64_t> contexts;
  for (uint64_t i = 0; i < kCommunicators; ++i) {
    contexts.push_back(tracker->AddCommunicator(
        {i + 1, "bench", 0, 8, 1, "0", "", "", 0, /*api_version=*/5, /*event_mask=*/0}));
  }
  const auto launch = [&](uint64_t context) {
    const uint64_t group = tracker->StartGroup(context, false, true);
    tracker->StartCall(context, {"AllReduce", "ncclFloat32", 1024, false, group, nullptr});
    tracker->Stop(tracker->StartLaunch(context, {nullptr, group}));
  };
  uint64_t rounds = 0;
  uint64_t polled_ns = 0;
  uint64_t launched_ns = 0;
  queries = 0;
  for (auto _ : state) {
    const uint64_t begin_ns = Clock::MonotonicNs();
    if (busy) {
      for (int i = 0; i < kLaunchesPerRound; ++i) {
        launch(contexts[static_cast<size_t>(i) % kCommunicators]);
      }
    }
    const uint64_t made_ns = Clock::MonotonicNs();
    launched_ns += made_ns - begin_ns;
    const timespec pause{
        0, static_cast<long>(made_ns - begin_ns < kPollNs ? kPollNs - (made_ns - begin_ns) : 0)};
    nanosleep(&pause, nullptr);
    if (++rounds % kRoundsPerSecond == 0) tracker->AdaptSampling();
    const uint64_t poll_ns = Clock::MonotonicNs();
    benchmark::DoNotOptimize(tracker->PollLaunches());
    const uint64_t round_ns = Clock::MonotonicNs() - poll_ns;
    polled_ns += round_ns;
    state.SetIterationTime(static_cast<double>(round_ns) * 1e-9);
  }
  const auto per_round = [&](uint64_t sum) {
    return static_cast<double>(sum) / static_cast<double>(rounds);
  };
  state.counters["core_percent"] = per_round(polled_ns) / static_cast<double>(kPollNs) * 100;
  state.counters["queries"] = per_round(queries);
  state.counters["exponent"] = segment->header().sampling_exponent.load();
  if (busy) state.counters["launch_ns"] = per_round(launched_ns) / kLaunchesPerRound;
}
BENCHMARK_CAPTURE(PollRound, Idle, false, false)
    ->UseManualTime()
    ->Iterations(200)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PollRound, Busy, true, false)
    ->UseManualTime()
    ->Iterations(500)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(PollRound, BusyAndBehind, true, true)
    ->UseManualTime()
    ->Iterations(500)
    ->Unit(benchmark::kMicrosecond);

// Reads the driver's costs from the arguments. If one is not a number, reports it and returns
// false.
bool ReadCosts(int* argc, char** argv) {
  const struct {
    const char* name;
    uint64_t* value;
  } flags[] = {{"--record_ns=", &costs.record_ns},
               {"--timed_record_ns=", &costs.timed_record_ns},
               {"--query_ns=", &costs.query_ns},
               {"--elapsed_ns=", &costs.elapsed_ns},
               {"--set_current_ns=", &costs.set_current_ns}};
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    bool ours = false;
    for (const auto& flag : flags) {
      if (strncmp(argv[i], flag.name, strlen(flag.name)) != 0) continue;
      char* end = nullptr;
      *flag.value = strtoull(argv[i] + strlen(flag.name), &end, 10);
      if (*end != '\0' || end == argv[i] + strlen(flag.name)) {
        fprintf(stderr, "%s is not a number of nanoseconds\n", argv[i]);
        return false;
      }
      ours = true;
    }
    if (!ours) argv[kept++] = argv[i];
  }
  *argc = kept;
  return true;
}

}  // namespace
}  // namespace nccl_pulse::bench

int main(int argc, char** argv) {
  if (!nccl_pulse::bench::ReadCosts(&argc, argv)) return 2;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
