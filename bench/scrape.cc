// What a scrape costs: from the segment to the whole text page, as the HTTP thread makes it.
//
//   ./bazelw run -c opt //bench:scrape
//
// One process; its communicators' histograms, with the counters and labels that come along, make up
// the number in the name. The twins with ...TextSerializer write the same page with
// prometheus-cpp's own serializer: the reason for exporter/text_format.h.
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "exporter/families.h"
#include "exporter/text_format.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/shared_bytes.h"
#include "metrics/size_class.h"
#include "metrics/snapshot.h"
#include "prometheus/text_serializer.h"
#include "tests/metrics/test_segment.h"

namespace nccl_pulse {
namespace {

constexpr int kHistogramsPerCommunicator = 25;
constexpr const char* kOps[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                "Reduce",    "Send",      "Recv"};
constexpr LatencyKind kKinds[] = {LatencyKind::kDurationKernel, LatencyKind::kCompletionProxy,
                                  LatencyKind::kCompletionKernel};

// One histogram of a communicator, as the plugin writes it, and the counters that come along.
void WriteHistogram(TestSegment& test, uint32_t index, uint32_t generation, int number) {
  const LatencyKind kind = kKinds[number % std::size(kKinds)];
  const int op_and_size = number / static_cast<int>(std::size(kKinds));
  const NameId op = test.Intern(kOps[op_and_size % std::size(kOps)]);
  const uint32_t size_class = op_and_size / static_cast<int>(std::size(kOps)) % kSizeClasses;
  LaneWriter launch = test.Writer(index, generation, LaneRole::kLaunch);
  if (kind == kKinds[0]) {
    launch.Count(
        SeriesKey::Pack(SeriesKind::kCalls, op, size_class, test.Intern("ncclBfloat16"), 0), 123456,
        uint64_t{1} << 42);
    launch.Count(
        SeriesKey::Pack(SeriesKind::kAlgorithm, op, 0, test.Intern("RING"), test.Intern("SIMPLE")),
        123456, 0);
    launch.Set(SeriesKey::Pack(SeriesKind::kSequence, op, 0, 0, 0), 12345);
  }
  LaneWriter progress = test.Writer(index, generation, LaneRole::kProgress);
  const uint64_t latency =
      SeriesKey::Pack(SeriesKind::kLatency, op, size_class, static_cast<uint32_t>(kind), 0);
  // Two octaves, as of an operation with a steady latency.
  for (uint64_t ns = 100000; ns < 400000; ns += 1000) {
    progress.Observe(latency, ns, uint64_t{1} << 40, uint64_t{7} << 38);
  }
}

// A process with so many histograms.
std::unique_ptr<TestSegment> MakeSegment(int histograms) {
  auto test = std::make_unique<TestSegment>(8192, 2048);
  SegmentHeader& header = test->segment().header();
  header.pid = 41234;
  header.nccl_api_version = 5;
  CopyToShared(header.plugin_version, "0.1.0");
  CopyToShared(header.timing, "kernel");
  CopyToShared(header.hostname, "gpu-node-0123.cluster.local");
  CopyToShared(header.global_rank, "1017");
  CopyToShared(header.local_rank, "1");
  CopyToShared(header.job_id, "4711234");
  uint32_t generation = 0;
  for (int number = 0; number < histograms; ++number) {
    const auto index = static_cast<uint32_t>(number / kHistogramsPerCommunicator);
    const int of_communicator = number % kHistogramsPerCommunicator;
    if (of_communicator == 0) {
      generation = test->AddCommunicator(index, 0x9e3779b97f4a7c15u * (index + 1), 1017,
                                         "tensor_parallel_group_" + std::to_string(index));
    }
    WriteHistogram(*test, index, generation, of_communicator);
  }
  return test;
}

SnapshotSet Read(const TestSegment& test, size_t histograms) {
  std::vector<ProcessSnapshot> processes(1);
  std::string error;
  Segment& segment = const_cast<TestSegment&>(test).segment();
  if (!ReadSegment(segment.base(), segment.bytes(), &processes.front(), &error)) abort();
  size_t read = 0;
  for (const CommunicatorSnapshot& communicator : processes.front().communicators) {
    read += communicator.latencies.size();
  }
  if (read != histograms) abort();
  return SnapshotSet(std::move(processes));
}

const StaticLabels kStaticLabels = {{"cluster", "eu-west-1"}};

void Scrape(benchmark::State& state, int histograms) {
  const auto segment = MakeSegment(histograms);
  std::size_t bytes = 0;
  for ([[maybe_unused]] auto _ : state) {
    const SnapshotSet snapshots = Read(*segment, histograms);
    const std::string page = TextFormat(BuildFamilies(snapshots, kStaticLabels, {}));
    benchmark::DoNotOptimize(page.data());
    bytes = page.size();
  }
  state.counters["page_bytes"] = static_cast<double>(bytes);
}

void ScrapeTextSerializer(benchmark::State& state, int histograms) {
  const auto segment = MakeSegment(histograms);
  for ([[maybe_unused]] auto _ : state) {
    std::ostringstream out;
    const SnapshotSet snapshots = Read(*segment, histograms);
    prometheus::TextSerializer().Serialize(out, BuildFamilies(snapshots, kStaticLabels, {}));
    const std::string page = out.str();
    benchmark::DoNotOptimize(page.data());
  }
}

void Scrape50(benchmark::State& state) { Scrape(state, 50); }
void Scrape1000(benchmark::State& state) { Scrape(state, 1000); }
void Scrape50TextSerializer(benchmark::State& state) { ScrapeTextSerializer(state, 50); }
void Scrape1000TextSerializer(benchmark::State& state) { ScrapeTextSerializer(state, 1000); }

BENCHMARK(Scrape50)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape50TextSerializer)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape1000)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape1000TextSerializer)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nccl_pulse
