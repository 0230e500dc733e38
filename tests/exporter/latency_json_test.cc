#include "exporter/exposition/json/latency_json.h"

#include <utility>

#include "gtest/gtest.h"
#include "metrics/histogram_geometry.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

// Of 1000 operations 800 take 10 us, 150 take 1 ms, 45 take 100 ms and 5 take 10 s.
HistogramSnapshot FourClusters() {
  HistogramSnapshot histogram;
  const std::pair<uint64_t, uint64_t> clusters[] = {
      {10'000, 800}, {1'000'000, 150}, {100'000'000, 45}, {10'000'000'000, 5}};
  for (const auto& [duration_ns, count] : clusters) {
    histogram.cells[CellIndex(duration_ns)] += count;
    histogram.sum_ns += duration_ns * count;
  }
  return histogram;
}

TEST(LatencyJson, EachQuantileIsItsOwn) {
  const auto json = LatencyJson(LatencyKind::kDurationStream, FourClusters(), 0);
  constexpr double kCell = 0.1;  // cells are 9 % wide
  EXPECT_NEAR(json["p50"].get<double>(), 10e-6, 10e-6 * kCell);
  EXPECT_NEAR(json["p90"].get<double>(), 1e-3, 1e-3 * kCell);
  EXPECT_NEAR(json["p99"].get<double>(), 0.1, 0.1 * kCell);
  EXPECT_NEAR(json["max"].get<double>(), 10, 10 * kCell);
  EXPECT_NEAR(json["mean"].get<double>(), (800 * 10e-6 + 150 * 1e-3 + 45 * 0.1 + 5 * 10) / 1000,
              1e-9);
  EXPECT_EQ(json["count"].get<uint64_t>(), 1000u);
}

TEST(LatencyJson, BusBandwidthIsOfDurationsAlone) {
  const HistogramSnapshot histogram = FourClusters();
  const double seconds = static_cast<double>(histogram.sum_ns) / 1e9;
  for (const LatencyKind kind : {LatencyKind::kDurationStream, LatencyKind::kDurationKernel}) {
    EXPECT_DOUBLE_EQ(LatencyJson(kind, histogram, 1000)["bus_bytes_per_second"].get<double>(),
                     1000 / seconds);
  }
  EXPECT_TRUE(
      LatencyJson(LatencyKind::kDurationStream, histogram, 0)["bus_bytes_per_second"].is_null());
  EXPECT_TRUE(LatencyJson(LatencyKind::kCompletionProxy, histogram, 1000)["bus_bytes_per_second"]
                  .is_null());
}

}  // namespace
}  // namespace nccl_pulse
