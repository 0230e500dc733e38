// Cost of counting: the cells and lanes behind every callback, and a reader's copy of them.
//   ./bazelw run -c opt //bench:metrics
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "benchmark/benchmark.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/snapshot.h"
#include "metrics/testing/test_segment.h"
#include "plugin/tracker/name_cache.h"

namespace nccl_pulse {
namespace {

// Latencies from 1 us to 60 ms in random order: neither branches nor cache lines are predictable.
constexpr size_t kDurations = 1024;

std::array<uint64_t, kDurations> MakeDurations() {
  std::array<uint64_t, kDurations> durations{};
  uint64_t state = 1;
  for (uint64_t& duration : durations) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    duration = (1000 + (state >> 40) % 1000) << (state >> 33) % 16;
  }
  return durations;
}

// Cells of one histogram. Each thread has its own, like each lane.
void HistogramRecord(benchmark::State& state) {
  struct alignas(4096) Page {
    HistogramPage histogram{};
  };
  const auto page = std::make_unique<Page>();
  HistogramPage* histogram = &page->histogram;
  const std::array<uint64_t, kDurations> durations = MakeDurations();
  size_t i = 0;
  for (auto _ : state) {
    // A callback looks its page up each time: its address is not kept in registers.
    benchmark::DoNotOptimize(histogram);
    RecordInPage(*histogram, durations[i], 1 << 20, 3 << 20);
    i = (i + 1) % kDurations;
    benchmark::ClobberMemory();
  }
}
BENCHMARK(HistogramRecord)->Threads(1)->Threads(2)->Threads(4);

uint64_t LatencyKey(uint32_t op, uint32_t size_class) {
  return SeriesKey::Latency(op, size_class, LatencyKind::kCompletionProxy);
}

// Like HistogramRecord; also claims a lane, finds the series and releases the lane, as a callback
// does.
void HistogramObserve(benchmark::State& state) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "benchmark");
  const std::array<uint64_t, kDurations> durations = MakeDurations();
  size_t i = 0;
  for (auto _ : state) {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kProgress);
    lane.Observe(LatencyKey(kAllReduceName, i % 4), durations[i], 1 << 20, 3 << 20);
    i = (i + 1) % kDurations;
  }
}
BENCHMARK(HistogramObserve);

// A counter series, with the lane already claimed.
void CounterCount(benchmark::State& state) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "benchmark");
  LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
  uint32_t i = 0;
  for (auto _ : state) {
    lane.Count(SeriesKey::Calls(kAllReduceName, i++ % 4, 20, false), 1, 1 << 20);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(CounterCount);

// Claims and releases a lane.
void LaneClaim(benchmark::State& state) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "benchmark");
  for (auto _ : state) {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    benchmark::DoNotOptimize(lane.ok());
  }
}
BENCHMARK(LaneClaim);

// A known name of NCCL.
void NameCacheFind(benchmark::State& state) {
  TestSegment test;
  const auto cache = std::make_unique<NameCache>(test.segment().names());
  const char* const names[] = {"AllReduce", "ncclFloat32", "RING", "SIMPLE"};
  uint32_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(cache->Find(names[i++ % 4]));
}
BENCHMARK(NameCacheFind);

// A snapshot of a segment with this many histograms, four per communicator, each in one lane.
void SegmentRead(benchmark::State& state) {
  const auto histograms = static_cast<uint32_t>(state.range(0));
  TestSegment test(8192, 4096);
  uint32_t generation = 0;
  for (uint32_t at = 0; at < histograms; ++at) {
    const uint32_t index = at / 4;
    if (at % 4 == 0) generation = test.AddCommunicator(index, index + 1, 0, "benchmark");
    LaneWriter launch = test.Writer(index, generation, LaneRole::kLaunch);
    launch.Count(SeriesKey::Calls(kAllReduceName, at % 4, 20, false), 1, 1 << 20);
    LaneWriter progress = test.Writer(index, generation, LaneRole::kProgress);
    for (const uint64_t duration : MakeDurations()) {
      progress.Observe(LatencyKey(kAllReduceName, at % 4), duration, 1 << 20, 3 << 20);
    }
  }
  ProcessSnapshot snapshot;
  std::string error;
  for (auto _ : state) {
    if (!ReadSegment(test.segment().base(), test.segment().bytes(), &snapshot, &error)) abort();
  }
  size_t read = 0;
  for (const CommunicatorSnapshot& communicator : snapshot.communicators) {
    read += communicator.latencies.size();
  }
  if (read != histograms) abort();
}
BENCHMARK(SegmentRead)->Arg(50)->Arg(1000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nccl_pulse
