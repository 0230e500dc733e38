// What it costs to count: the cells and lanes under every callback, and a reader's copy of them.
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
#include "plugin/tracker/name_cache.h"
#include "tests/metrics/test_segment.h"

namespace nccl_pulse {
namespace {

// Latencies from 1 us to 60 ms in no order: no branch and no cache line can be guessed.
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

// One histogram's cells; each thread has its own, as each lane does.
void HistogramRecord(benchmark::State& state) {
  struct alignas(4096) Page {
    HistogramPage histogram{};
  };
  const auto page = std::make_unique<Page>();
  HistogramPage* histogram = &page->histogram;
  const std::array<uint64_t, kDurations> durations = MakeDurations();
  size_t i = 0;
  for (auto _ : state) {
    // A callback finds its page anew each time; nothing of its address is kept in registers.
    benchmark::DoNotOptimize(histogram);
    RecordInPage(*histogram, durations[i], 1 << 20, 3 << 20);
    i = (i + 1) % kDurations;
    benchmark::ClobberMemory();
  }
}
BENCHMARK(HistogramRecord)->Threads(1)->Threads(2)->Threads(4);

uint64_t LatencyKey(uint32_t op, uint32_t size_class) {
  return SeriesKey::Pack(SeriesKind::kLatency, op, size_class,
                         static_cast<uint32_t>(LatencyKind::kCompletionProxy), 0);
}

// The same with a lane claimed, the series found and the lane given back: a whole callback's part.
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

// A counter series with the lane already claimed.
void CounterCount(benchmark::State& state) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "benchmark");
  LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
  uint32_t i = 0;
  for (auto _ : state) {
    lane.Count(SeriesKey::Pack(SeriesKind::kCalls, kAllReduceName, i++ % 4, 20, 0), 1, 1 << 20);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(CounterCount);

// Claiming a lane and giving it back.
void LaneClaim(benchmark::State& state) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "benchmark");
  for (auto _ : state) {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    benchmark::DoNotOptimize(lane.ok());
  }
}
BENCHMARK(LaneClaim);

// A name of NCCL's that has been seen before.
void NameCacheFind(benchmark::State& state) {
  TestSegment test;
  const auto cache = std::make_unique<NameCache>(test.segment().names());
  const char* const names[] = {"AllReduce", "ncclFloat32", "RING", "SIMPLE"};
  uint32_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(cache->Find(names[i++ % 4]));
}
BENCHMARK(NameCacheFind);

// A snapshot of a segment with so many histograms, four a communicator, each in one lane.
void SegmentRead(benchmark::State& state) {
  const auto histograms = static_cast<uint32_t>(state.range(0));
  TestSegment test(8192, 4096);
  for (uint32_t at = 0; at < histograms; ++at) {
    const uint32_t index = at / 4;
    const uint32_t generation = at % 4 == 0 ? test.AddCommunicator(index, index + 1, 0, "benchmark")
                                            : test.segment().record(index).generation.load();
    LaneWriter launch = test.Writer(index, generation, LaneRole::kLaunch);
    launch.Count(SeriesKey::Pack(SeriesKind::kCalls, kAllReduceName, at % 4, 20, 0), 1, 1 << 20);
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
