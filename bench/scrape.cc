// Cost of a scrape, from the segments to the whole page, as the HTTP thread makes it.
//
//   ./bazelw run -c opt //bench:scrape
//
// The number in a name is the number of series of one process: its communicators' histograms with
// their counters and labels. The protobuf page has the histograms natively and with classic
// buckets, which is the default; ...Native has them natively only. ...Gzip also compresses the
// page. ScrapeNode64x16 is the page of a node with 64 processes, each with 16 communicators of two
// histograms. StatusPage... is the compressed JSON for the status page; Node8x16 has 8 processes.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "exporter/base/gzip.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/families.h"
#include "exporter/exposition/json/communicators_json.h"
#include "exporter/exposition/protobuf_format.h"
#include "exporter/exposition/text_format.h"
#include "metrics/header_writer.h"
#include "metrics/lane_writer.h"
#include "metrics/segment_reader.h"
#include "metrics/size_class.h"
#include "metrics/snapshot.h"
#include "metrics/testing/test_segment.h"

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

// Makes a process with `histograms` histograms in total, and `of_each` in each communicator.
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

void Register(const std::string& name, const Kind& kind, int histograms) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    Scrape(state, OneProcess(histograms), histograms, kind);
  })->Unit(benchmark::kMillisecond);
}

// Registers Scrape[FORMAT]HISTOGRAMS for one process, and ScrapeNode64x16[FORMAT] for 64 processes
// with 16 communicators of two histograms each.
[[maybe_unused]] const bool kAreRegistered = [] {
  const std::pair<const char*, Kind> kinds[] = {
      {"", {PageFormat::kText}},
      {"Gzip", {PageFormat::kText, true}},
      {"OpenMetrics", {PageFormat::kOpenMetrics}},
      {"Protobuf", {PageFormat::kProtobuf}},
      {"ProtobufNative", {PageFormat::kProtobuf, false, "native"}},
      {"ProtobufGzip", {PageFormat::kProtobuf, true}},
  };
  for (const auto& [name, kind] : kinds) {
    Register(absl::StrCat("Scrape", name, "50"), kind, 50);
    Register(absl::StrCat("Scrape", name, "1000"), kind, 1000);
    benchmark::RegisterBenchmark(
        absl::StrCat("ScrapeNode64x16", name).c_str(),
        [kind = kind](benchmark::State& state) { Scrape(state, NodeOf(64), 64 * 16 * 2, kind); })
        ->Unit(benchmark::kMillisecond);
  }
  for (const int ranks : {8, 64}) {
    benchmark::RegisterBenchmark(
        absl::StrCat("StatusPageNode", ranks, "x16").c_str(),
        [ranks](benchmark::State& state) { StatusPage(state, NodeOf(ranks), ranks * 16 * 2); })
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace nccl_pulse
