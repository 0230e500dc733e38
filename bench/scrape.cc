// What a scrape costs: from snapshots to the whole text page, as the HTTP thread makes it.
//
//   ./bazelw run -c opt //bench:scrape
//
// One process with eight communicators; their histograms, with the counters and labels that come
// along, make up the number in the name. The twins with ...TextSerializer write the same page with
// prometheus-cpp's own serializer: the reason for exporter/text_format.h.
#include <sstream>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "exporter/families.h"
#include "exporter/text_format.h"
#include "metrics/size_class.h"
#include "metrics/snapshot.h"
#include "prometheus/text_serializer.h"

namespace nccl_pulse {
namespace {

constexpr int kCommunicators = 8;
constexpr const char* kOps[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                "Reduce",    "Send",      "Recv"};
constexpr LatencyKind kKinds[] = {LatencyKind::kDurationKernel, LatencyKind::kCompletionProxy,
                                  LatencyKind::kCompletionKernel};

LatencySnapshot MakeLatency(LatencyKind kind, const char* op, int size_class) {
  LatencySnapshot latency;
  latency.kind = kind;
  latency.op = op;
  latency.size_class = size_class;
  // An occupied range of two octaves, as of an operation with a steady latency.
  for (int cell = 60; cell < 76; ++cell) latency.histogram.cells[cell] = 1000 + cell * 37;
  latency.histogram.sum_ns = 123456789012;
  latency.bytes = uint64_t{1} << 40;
  latency.bus_bytes = uint64_t{7} << 38;
  return latency;
}

std::vector<ProcessSnapshot> MakeProcess(int histograms) {
  ProcessSnapshot process;
  process.pid = 41234;
  process.plugin_version = "0.1.0";
  process.hostname = "gpu-node-0123.cluster.local";
  process.global_rank = "1017";
  process.local_rank = "1";
  process.job_id = "4711234";
  process.nccl_api_version = 5;
  process.timing = "kernel";
  process.start_realtime_ns = process.last_poll_realtime_ns = 1760000000123456789;
  process.communicators.resize(kCommunicators);
  for (int i = 0; i < kCommunicators; ++i) {
    CommunicatorSnapshot& comm = process.communicators[i];
    comm.comm_id = 0x9e3779b97f4a7c15u * (i + 1);
    comm.name = "tensor_parallel_group_" + std::to_string(i);
    comm.rank = 1017;
    comm.nranks = 2048;
    comm.nnodes = 256;
    comm.index = i;
    comm.gpu = "1";
    comm.uuid = "GPU-8a56b4a1-93c7-11ee-b9d1-0242ac120002";
    comm.pci_bus_id = "00000000:18:00.0";
    comm.launches = 123456;
    comm.last_launch_realtime_ns = comm.last_completion_realtime_ns = 1760000000123456789;
    for (const char* op : kOps) comm.sequences.push_back({op, 12345});
  }
  // Every communicator gets its share: all kinds of an operation and size before the next size.
  for (int n = 0; n < histograms; ++n) {
    CommunicatorSnapshot& comm = process.communicators[n % kCommunicators];
    const int of_comm = n / kCommunicators;
    const LatencyKind kind = kKinds[of_comm % std::size(kKinds)];
    const int op_and_size = of_comm / static_cast<int>(std::size(kKinds));
    const char* op = kOps[op_and_size % std::size(kOps)];
    const int size_class = op_and_size / static_cast<int>(std::size(kOps)) % kSizeClasses;
    comm.latencies.push_back(MakeLatency(kind, op, size_class));
    if (kind == kKinds[0]) {
      comm.calls.push_back({op, size_class, "ncclBfloat16", false, 123456, uint64_t{1} << 42});
      comm.algorithms.push_back({op, "RING", "SIMPLE", 123456});
      comm.untimed.push_back({op, UntimedReason::kOverlap, 12});
    }
  }
  return {process};
}

const StaticLabels kStaticLabels = {{"cluster", "eu-west-1"}};

void Scrape(benchmark::State& state, int histograms) {
  const SnapshotSet snapshots(MakeProcess(histograms));
  std::size_t bytes = 0;
  for ([[maybe_unused]] auto _ : state) {
    const std::string page = TextFormat(BuildFamilies(snapshots, kStaticLabels, {}));
    benchmark::DoNotOptimize(page.data());
    bytes = page.size();
  }
  state.counters["page_bytes"] = static_cast<double>(bytes);
}

void ScrapeTextSerializer(benchmark::State& state, int histograms) {
  const SnapshotSet snapshots(MakeProcess(histograms));
  for ([[maybe_unused]] auto _ : state) {
    std::ostringstream out;
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
