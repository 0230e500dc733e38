#include "exporter/communicators_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "metrics/histogram_geometry.h"
#include "metrics/size_class.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::ordered_json;

// Whole microseconds: nanoseconds of the Unix time are more than a double holds, and would show as
// noise.
double Seconds(int64_t ns) { return static_cast<double>(ns / 1000) / 1e6; }
double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

Json TimeOrNull(int64_t realtime_ns) {
  return realtime_ns == 0 ? Json(nullptr) : Json(Seconds(realtime_ns));
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// The bound of the overflow cell is not a number that JSON has: its lower one.
double UpperBound(int cell) {
  return cell == kOverflowCell ? std::ldexp(1.0, kMaxExponent) : CellUpperBoundSeconds(cell);
}

Json ProcessJson(const ProcessSnapshot& process) {
  return {{"pid", process.pid},
          {"state", ProcessEndName(process.end)},
          {"ended", TimeOrNull(process.end_realtime_ns)},
          {"hostname", TextOrNull(process.hostname)},
          {"global_rank", TextOrNull(process.global_rank)},
          {"local_rank", TextOrNull(process.local_rank)},
          {"job_id", TextOrNull(process.job_id)}};
}

// As on /metrics: without a heartbeat nothing is known of what is in flight, and a communicator
// with graphs is never known to be idle.
Json LaunchesJson(const CommunicatorSnapshot& comm) {
  Json json = {{"made", comm.launches},
               {"completed", nullptr},
               {"in_flight", nullptr},
               {"in_flight_since", nullptr}};
  if (!comm.has_heartbeat) return json;
  json["completed"] = comm.launches_completed;
  const uint64_t in_flight =
      comm.launches > comm.launches_completed ? comm.launches - comm.launches_completed : 0;
  const bool idle = in_flight == 0 || comm.oldest_inflight_realtime_ns == 0;
  if (idle && comm.captured) return json;
  json["in_flight"] = in_flight;
  if (!idle) json["in_flight_since"] = Seconds(comm.oldest_inflight_realtime_ns);
  return json;
}

Json LastTimedJson(const CommunicatorSnapshot& comm) {
  const auto last = std::max_element(comm.timed_calls.begin(), comm.timed_calls.end(),
                                     [](const TimedCallSnapshot& a, const TimedCallSnapshot& b) {
                                       return a.end_realtime_ns < b.end_realtime_ns;
                                     });
  if (last == comm.timed_calls.end()) return nullptr;
  return {{"op", last->op},
          {"size", SizeClassName(last->size_class)},
          {"bytes", last->bytes},
          {"seconds", Seconds(last->duration_ns)},
          {"ended", TimeOrNull(last->end_realtime_ns)},
          {"call", last->call_number}};
}

Json OperationsJson(const CommunicatorSnapshot& comm) {
  struct Sum {
    uint64_t calls = 0;
    uint64_t bytes = 0;
    Json sequence = nullptr;
  };
  std::map<std::string, Sum> by_op;
  for (const CallCountSnapshot& call : comm.calls) {
    by_op[call.op].calls += call.calls;
    by_op[call.op].bytes += call.bytes;
  }
  for (const SequenceSnapshot& sequence : comm.sequences) {
    by_op[sequence.op].sequence = sequence.sequence;
  }
  Json json = Json::array();
  for (const auto& [op, sum] : by_op) {
    json.push_back(
        {{"op", op}, {"calls", sum.calls}, {"bytes", sum.bytes}, {"sequence", sum.sequence}});
  }
  return json;
}

Json LatencyJson(const LatencySnapshot& latency) {
  const bool is_duration =
      latency.kind == LatencyKind::kDurationKernel || latency.kind == LatencyKind::kDurationStream;
  std::string_view source = "kernel";
  if (latency.kind == LatencyKind::kDurationStream) source = "stream";
  if (latency.kind == LatencyKind::kCompletionProxy) source = "proxy";
  const HistogramSnapshot& histogram = latency.histogram;
  const uint64_t count = histogram.Count();
  const double sum = Seconds(histogram.sum_ns);
  Json json = {{"op", latency.op},
               {"size", SizeClassName(latency.size_class)},
               {"measure", is_duration ? "duration" : "completion"},
               {"source", source},
               {"count", count},
               {"mean", sum / static_cast<double>(count)},
               {"p50", HistogramQuantile(histogram, 0.5)},
               {"p90", HistogramQuantile(histogram, 0.9)},
               {"p99", HistogramQuantile(histogram, 0.99)},
               {"max", HistogramQuantile(histogram, 1)},
               {"bus_bytes_per_second", nullptr}};
  if (is_duration && latency.bus_bytes > 0 && histogram.sum_ns > 0) {
    json["bus_bytes_per_second"] = static_cast<double>(latency.bus_bytes) / sum;
  }
  return json;
}

Json RankJson(const ProcessSnapshot& process, const CommunicatorSnapshot& comm) {
  Json latencies = Json::array();
  for (const LatencySnapshot& latency : comm.latencies) {
    if (latency.histogram.Count() > 0) latencies.push_back(LatencyJson(latency));
  }
  return {{"rank", comm.rank},
          {"active", !comm.finalized && process.end == ProcessEnd::kLive},
          {"process", ProcessJson(process)},
          {"gpu",
           {{"index", TextOrNull(comm.gpu)},
            {"uuid", TextOrNull(comm.uuid)},
            {"pci_bus_id", TextOrNull(comm.pci_bus_id)}}},
          {"captured", comm.captured},
          {"launches", LaunchesJson(comm)},
          {"last_launch", TimeOrNull(comm.last_launch_realtime_ns)},
          {"last_completion", TimeOrNull(comm.last_completion_realtime_ns)},
          {"last_timed_operation", LastTimedJson(comm)},
          {"operations", OperationsJson(comm)},
          {"latencies", std::move(latencies)}};
}

struct Rank {
  const ProcessSnapshot* process;
  const CommunicatorSnapshot* communicator;
};

}  // namespace

double HistogramQuantile(const HistogramSnapshot& histogram, double quantile) {
  const double wanted = quantile * static_cast<double>(histogram.Count());
  double below = 0;
  int last = kZeroCell;
  for (int cell = 0; cell < kHistogramCells; ++cell) {
    const auto inside = static_cast<double>(histogram.cells[cell]);
    if (inside == 0) continue;
    last = cell;
    if (below + inside >= wanted) {
      const double share = (wanted - below) / inside;
      if (cell == kOverflowCell) break;
      if (cell == kZeroCell) return UpperBound(cell) * share;
      const double lower = UpperBound(cell - 1);
      return lower * std::pow(UpperBound(cell) / lower, share);
    }
    below += inside;
  }
  return UpperBound(last);
}

std::string CommunicatorsJson(const SnapshotSet& snapshots, int64_t now_realtime_ns) {
  std::map<uint64_t, std::vector<Rank>> by_id;
  for (const ProcessSnapshot& process : snapshots.processes) {
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      by_id[communicator.comm_id].push_back({&process, &communicator});
    }
  }
  Json communicators = Json::array();
  for (auto& [id, ranks] : by_id) {
    std::stable_sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
      return a.communicator->rank < b.communicator->rank;
    });
    const CommunicatorSnapshot& first = *ranks.front().communicator;
    Json list = Json::array();
    for (const Rank& rank : ranks) list.push_back(RankJson(*rank.process, *rank.communicator));
    communicators.push_back({{"comm", absl::StrCat(absl::Hex(id, absl::kZeroPad16))},
                             {"name", TextOrNull(first.name)},
                             {"nranks", first.nranks},
                             {"nnodes", first.nnodes},
                             {"ranks", std::move(list)}});
  }
  const Json json = {{"time", Seconds(now_realtime_ns)},
                     {"communicators", std::move(communicators)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nccl_pulse
