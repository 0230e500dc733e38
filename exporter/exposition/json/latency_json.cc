#include "exporter/exposition/json/latency_json.h"

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "exporter/exposition/captured_kind.h"
#include "metrics/histogram_geometry.h"
#include "metrics/size_class.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCellsOfBucket = 2;
// The zero cell, pairs of the cells between, and the overflow cell.
constexpr int kBuckets = 2 + (kHistogramCells - 2) / kCellsOfBucket;

int BucketOfCell(int cell) {
  if (cell == kZeroCell) return 0;
  return 1 + (cell - 1) / kCellsOfBucket;
}

// JSON has no number for the overflow cell's bound: returns its lower bound.
double UpperBound(int cell) {
  return cell == kOverflowCell ? std::ldexp(1.0, kMaxExponent) : CellUpperBoundSeconds(cell);
}

// Returns the bounds with four digits: with sixteen they would be most of the page.
const std::array<Json, kBuckets>& BucketBounds() {
  static const auto* const kBounds = [] {
    auto* made = new std::array<Json, kBuckets>();
    for (int cell = 0; cell < kOverflowCell; ++cell) {
      double rounded = 0;
      // Not strtod: the job may have a locale with a decimal comma.
      if (absl::SimpleAtod(absl::StrFormat("%.4g", CellUpperBoundSeconds(cell)), &rounded)) {
        (*made)[BucketOfCell(cell)] = rounded;
      }
    }
    return made;
  }();
  return *kBounds;
}

struct LatencySum {
  HistogramSnapshot histogram;
  uint64_t bus_bytes = 0;
};

struct OperationSum {
  uint64_t calls = 0;
  uint64_t replayed = 0;  // by CUDA graphs, where that is known
  uint64_t bytes = 0;
  std::map<LatencyKind, LatencySum> latencies;
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

Json LatencyJson(LatencyKind kind, const HistogramSnapshot& histogram, uint64_t bus_bytes) {
  const bool is_duration =
      kind == LatencyKind::kDurationKernel || kind == LatencyKind::kDurationStream ||
      kind == LatencyKind::kDurationNetwork || kind == LatencyKind::kDurationGraph;
  std::string_view source = "kernel";
  if (kind == LatencyKind::kDurationStream) source = "stream";
  if (kind == LatencyKind::kDurationNetwork) source = "network";
  if (kind == LatencyKind::kDurationGraph) source = "graph";
  if (kind == LatencyKind::kCompletionProxy) source = "proxy";
  const uint64_t count = histogram.Count();
  const double sum = static_cast<double>(histogram.sum_ns) / 1e9;
  Json json = {{"measure", is_duration ? "duration" : "completion"},
               {"source", source},
               {"count", count},
               {"mean", sum / static_cast<double>(count)},
               {"p50", HistogramQuantile(histogram, 0.5)},
               {"p90", HistogramQuantile(histogram, 0.9)},
               {"p99", HistogramQuantile(histogram, 0.99)},
               {"max", HistogramQuantile(histogram, 1)},
               {"bus_bytes_per_second", nullptr}};
  if (is_duration && bus_bytes > 0 && histogram.sum_ns > 0) {
    json["bus_bytes_per_second"] = static_cast<double>(bus_bytes) / sum;
  }
  return json;
}

Json BucketsJson(const HistogramSnapshot& histogram) {
  std::array<uint64_t, kBuckets> counts{};
  for (int cell = 0; cell < kHistogramCells; ++cell) {
    counts[BucketOfCell(cell)] += histogram.cells[cell];
  }
  Json json = Json::array();
  for (int i = 0; i < kBuckets; ++i) {
    if (counts[i] > 0) json.push_back(Json::array({BucketBounds()[i], counts[i]}));
  }
  return json;
}

Json OperationsOfAllRanks(const std::vector<const CommunicatorSnapshot*>& ranks) {
  std::map<std::pair<std::string, int>, OperationSum> by_size;
  for (const CommunicatorSnapshot* rank : ranks) {
    for (const CallCountSnapshot& call : rank->calls) {
      OperationSum& sum = by_size[{call.op, call.size_class}];
      sum.calls += call.calls;
      sum.bytes += call.bytes;
    }
    const CapturedKind kind = CapturedKindOf(*rank);
    if (rank->work.are_operations_known && kind.has_size()) {
      by_size[{std::string(kind.op), kind.size_class}].replayed += rank->work.operations;
    }
    for (const LatencySnapshot& latency : rank->latencies) {
      LatencySum& sum = by_size[{latency.op, latency.size_class}].latencies[latency.kind];
      sum.histogram += latency.histogram;
      sum.bus_bytes += latency.bus_bytes;
    }
  }
  Json json = Json::array();
  for (const auto& [key, sum] : by_size) {
    Json latencies = Json::array();
    for (const auto& [kind, latency] : sum.latencies) {
      if (latency.histogram.Count() == 0) continue;
      latencies.push_back(LatencyJson(kind, latency.histogram, latency.bus_bytes));
      latencies.back()["buckets"] = BucketsJson(latency.histogram);
    }
    json.push_back({{"op", key.first},
                    {"size", SizeClassName(key.second)},
                    {"calls", sum.calls},
                    {"replayed", sum.replayed},
                    {"bytes", sum.bytes},
                    {"latencies", std::move(latencies)}});
  }
  return json;
}

}  // namespace nccl_pulse
