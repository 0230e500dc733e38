// Cost of a scrape, from the segments to the whole page, as the HTTP thread makes it.
//
//   ./bazelw run -c opt //bench:scrape
//
// The number in a name is the number of series of one process: its communicators' histograms with
// their counters and labels. The protobuf page has the histograms natively and with classic
// buckets, which is the default; ...Native has them natively only. ...Gzip also compresses the
// page. ScrapeNode64x16 is the page of a node with 64 processes, each with 16 communicators of two
// histograms. StatusPage... is the compressed JSON for the status page; Node8x16 has 8 processes.
// ...TextSerializer writes the same page with prometheus-cpp's own serializer: the reason for
// exporter/exposition/text_format.h.
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "exporter/base/gzip.h"
#include "exporter/exposition/communicators_json.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/families.h"
#include "exporter/exposition/protobuf_format.h"
#include "exporter/exposition/text_format.h"
#include "metrics/header_writer.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/size_class.h"
#include "metrics/snapshot.h"
#include "metrics/testing/test_segment.h"
#include "prometheus/text_serializer.h"

namespace nccl_pulse {
namespace {

constexpr int kHistogramsPerCommunicator = 25;
constexpr const char* kOps[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                "Reduce",    "Send",      "Recv"};
constexpr LatencyKind kKinds[] = {LatencyKind::kDurationKernel, LatencyKind::kCompletionProxy,
                                  LatencyKind::kCompletionKernel};

// Writes one histogram of a communicator, as the plugin does, and its counters.
void WriteHistogram(TestSegment& test, uint32_t index, uint32_t generation, int number) {
  const LatencyKind kind = kKinds[number % std::size(kKinds)];
  const int op_and_size = number / static_cast<int>(std::size(kKinds));
  const NameId op = test.Intern(kOps[op_and_size % std::size(kOps)]);
  const uint32_t size_class = op_and_size / static_cast<int>(std::size(kOps)) % kSizeClasses;
  LaneWriter launch = test.Writer(index, generation, LaneRole::kLaunch);
  if (kind == kKinds[0]) {
    launch.Count(SeriesKey::Calls(op, size_class, test.Intern("ncclBfloat16"), false), 123456,
                 uint64_t{1} << 42);
    launch.Count(
        SeriesKey::Algorithm(op, SeriesKey::kTimed, test.Intern("RING"), test.Intern("SIMPLE")),
        123456, 12346);
  }
  LaneWriter progress = test.Writer(index, generation, LaneRole::kProgress);
  const uint64_t latency = SeriesKey::Latency(op, size_class, kind);
  // Two octaves, like an operation with a steady latency.
  for (uint64_t ns = 100000; ns < 400000; ns += 1000) {
    progress.Observe(latency, ns, uint64_t{1} << 40, uint64_t{7} << 38);
  }
}

// Makes a process with this many histograms, and this many in each of its communicators.
std::unique_ptr<TestSegment> MakeSegment(int histograms, int of_each = kHistogramsPerCommunicator,
                                         int rank = 0) {
  auto test = std::make_unique<TestSegment>(8192, histograms < 100 ? 128 : 2048);
  HeaderWriter::Identity process;
  process.pid = 41234 + rank;
  process.nccl_api_version = 5;
  process.plugin_version = "0.1.0";
  process.timing = "kernel";
  process.hostname = "gpu-node-0123.cluster.local";
  process.global_rank = "1017";
  process.local_rank = "1";
  process.job_id = "4711234";
  HeaderWriter(test->segment()).Identify(process);
  uint32_t generation = 0;
  for (int number = 0; number < histograms; ++number) {
    const auto index = static_cast<uint32_t>(number / of_each);
    const int of_communicator = number % of_each;
    if (of_communicator == 0) {
      generation = test->AddCommunicator(index, 0x9e3779b97f4a7c15u * (index + 1), 1017 + rank,
                                         "tensor_parallel_group_" + std::to_string(index));
    }
    WriteHistogram(*test, index, generation, of_communicator);
  }
  return test;
}

using Segments = std::vector<std::unique_ptr<TestSegment>>;

Segments OneProcess(int histograms) {
  Segments segments;
  segments.push_back(MakeSegment(histograms));
  return segments;
}

Segments NodeOf(int ranks) {
  Segments segments;
  for (int rank = 0; rank < ranks; ++rank) segments.push_back(MakeSegment(32, 2, rank));
  return segments;
}

SnapshotSet Read(const Segments& segments, std::size_t histograms) {
  std::vector<ProcessSnapshot> processes(segments.size());
  std::size_t read = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    std::string error;
    Segment& segment = segments[i]->segment();
    if (!ReadSegment(segment.base(), segment.bytes(), &processes[i], &error)) abort();
    for (const CommunicatorSnapshot& communicator : processes[i].communicators) {
      read += communicator.latencies.size();
    }
  }
  if (read != histograms) abort();
  return SnapshotSet(std::move(processes));
}

const StaticLabels kStaticLabels = {{"cluster", "eu-west-1"}};

std::string Page(const SnapshotSet& snapshots, PageFormat format, const Exposition& exposition) {
  const auto families = BuildFamilies(snapshots, kStaticLabels, {}, exposition, format);
  switch (format) {
    case PageFormat::kText:
      return TextFormat(families);
    case PageFormat::kOpenMetrics:
      return OpenMetricsFormat(families);
    case PageFormat::kProtobuf:
      break;
  }
  return ProtobufFormat(families);
}

struct Kind {
  PageFormat format = PageFormat::kText;
  bool gzip = false;
  const char* histograms = "both";
};

void Scrape(benchmark::State& state, const Segments& segments, std::size_t histograms,
            const Kind& kind) {
  Exposition exposition;
  if (!ParseHistograms(kind.histograms, &exposition)) abort();
  std::size_t bytes = 0;
  for ([[maybe_unused]] auto _ : state) {
    std::string page = Page(Read(segments, histograms), kind.format, exposition);
    if (kind.gzip) page = Gzip(page).value();
    benchmark::DoNotOptimize(page.data());
    bytes = page.size();
  }
  state.counters["page_bytes"] = static_cast<double>(bytes);
}

void ScrapeTextSerializer(benchmark::State& state, int histograms) {
  const Segments segments = OneProcess(histograms);
  for ([[maybe_unused]] auto _ : state) {
    std::ostringstream out;
    const auto families = BuildFamilies(Read(segments, histograms), kStaticLabels, {});
    prometheus::TextSerializer().Serialize(
        out, std::vector<prometheus::MetricFamily>(families.begin(), families.end()));
    const std::string page = out.str();
    benchmark::DoNotOptimize(page.data());
  }
}

constexpr Kind kText = {PageFormat::kText};
constexpr Kind kTextGzip = {PageFormat::kText, true};
constexpr Kind kOpenMetrics = {PageFormat::kOpenMetrics};
constexpr Kind kProtobuf = {PageFormat::kProtobuf};
constexpr Kind kProtobufNative = {PageFormat::kProtobuf, false, "native"};
constexpr Kind kProtobufGzip = {PageFormat::kProtobuf, true};

void ScrapeOne(benchmark::State& state, int histograms, const Kind& kind) {
  Scrape(state, OneProcess(histograms), histograms, kind);
}
void ScrapeNode(benchmark::State& state, const Kind& kind) {
  Scrape(state, NodeOf(64), 64 * 16 * 2, kind);
}

void Scrape50(benchmark::State& state) { ScrapeOne(state, 50, kText); }
void Scrape50TextSerializer(benchmark::State& state) { ScrapeTextSerializer(state, 50); }
void ScrapeOpenMetrics50(benchmark::State& state) { ScrapeOne(state, 50, kOpenMetrics); }
void ScrapeProtobuf50(benchmark::State& state) { ScrapeOne(state, 50, kProtobuf); }
void ScrapeProtobufNative50(benchmark::State& state) { ScrapeOne(state, 50, kProtobufNative); }
void Scrape50Gzip(benchmark::State& state) { ScrapeOne(state, 50, kTextGzip); }
void ScrapeProtobuf50Gzip(benchmark::State& state) { ScrapeOne(state, 50, kProtobufGzip); }
void Scrape1000(benchmark::State& state) { ScrapeOne(state, 1000, kText); }
void Scrape1000TextSerializer(benchmark::State& state) { ScrapeTextSerializer(state, 1000); }
void ScrapeOpenMetrics1000(benchmark::State& state) { ScrapeOne(state, 1000, kOpenMetrics); }
void ScrapeProtobuf1000(benchmark::State& state) { ScrapeOne(state, 1000, kProtobuf); }
void ScrapeProtobufNative1000(benchmark::State& state) { ScrapeOne(state, 1000, kProtobufNative); }
void Scrape1000Gzip(benchmark::State& state) { ScrapeOne(state, 1000, kTextGzip); }
void ScrapeProtobuf1000Gzip(benchmark::State& state) { ScrapeOne(state, 1000, kProtobufGzip); }
void ScrapeNode64x16(benchmark::State& state) { ScrapeNode(state, kText); }
void ScrapeNode64x16Protobuf(benchmark::State& state) { ScrapeNode(state, kProtobuf); }
void ScrapeNode64x16Gzip(benchmark::State& state) { ScrapeNode(state, kTextGzip); }
void ScrapeNode64x16ProtobufGzip(benchmark::State& state) { ScrapeNode(state, kProtobufGzip); }

// The request that an open status page makes every two seconds, as a browser sends it.
void StatusPage(benchmark::State& state, const Segments& segments, std::size_t histograms) {
  std::size_t bytes = 0;
  std::size_t gzip_bytes = 0;
  for ([[maybe_unused]] auto _ : state) {
    const std::string json = CommunicatorsJson(Read(segments, histograms), 1760000003250000000);
    bytes = json.size();
    gzip_bytes = Gzip(json).value().size();
  }
  state.counters["page_bytes"] = static_cast<double>(bytes);
  state.counters["gzip_bytes"] = static_cast<double>(gzip_bytes);
}
void StatusPage50(benchmark::State& state) { StatusPage(state, OneProcess(50), 50); }
void StatusPageNode8x16(benchmark::State& state) { StatusPage(state, NodeOf(8), 8 * 16 * 2); }
void StatusPageNode64x16(benchmark::State& state) { StatusPage(state, NodeOf(64), 64 * 16 * 2); }

BENCHMARK(StatusPage50)->Unit(benchmark::kMillisecond);
BENCHMARK(StatusPageNode8x16)->Unit(benchmark::kMillisecond);
BENCHMARK(StatusPageNode64x16)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape50)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape50TextSerializer)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeOpenMetrics50)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeProtobuf50)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeProtobufNative50)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape50Gzip)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeProtobuf50Gzip)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape1000)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape1000TextSerializer)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeOpenMetrics1000)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeProtobuf1000)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeProtobufNative1000)->Unit(benchmark::kMillisecond);
BENCHMARK(Scrape1000Gzip)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeProtobuf1000Gzip)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeNode64x16)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeNode64x16Protobuf)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeNode64x16Gzip)->Unit(benchmark::kMillisecond);
BENCHMARK(ScrapeNode64x16ProtobufGzip)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nccl_pulse
