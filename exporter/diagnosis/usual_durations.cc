#include "exporter/diagnosis/usual_durations.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "exporter/diagnosis/rank_view.h"
#include "metrics/histogram_geometry.h"

namespace nccl_pulse {
namespace {

constexpr double kUsualShare = 0.98;

// In the middle of a cell, where a call of it is taken to be.
double MiddleNs(int cell) {
  const double upper = CellUpperBoundSeconds(std::min(cell, kOverflowCell - 1)) * 1e9;
  return cell == kZeroCell ? upper / 2 : upper * 0.96;  // a cell is 9 % wide
}

double UsualNs(const HistogramSnapshot& histogram, uint64_t calls) {
  double ns = 0;
  double counted = 0;
  double last_ns = 0;
  const double usual = kUsualShare * static_cast<double>(calls);
  for (int cell = 0; cell < kHistogramCells && counted < usual; ++cell) {
    if (histogram.cells[cell] == 0) continue;
    last_ns = MiddleNs(cell);
    counted += static_cast<double>(histogram.cells[cell]);
    ns += static_cast<double>(histogram.cells[cell]) * last_ns;
  }
  return ns + (static_cast<double>(calls) - counted) * last_ns;
}

}  // namespace

std::vector<UsualDurationSnapshot> UsualDurationsOf(const CommunicatorSnapshot& communicator) {
  if (!communicator.usual_durations.empty()) return communicator.usual_durations;
  // A kind may have several user tags.
  std::map<std::tuple<LatencyKind, std::string, int>, HistogramSnapshot> kinds;
  for (const LatencySnapshot& each : communicator.latencies) {
    const bool is_duration =
        each.kind == LatencyKind::kDurationStream || each.kind == LatencyKind::kDurationKernel;
    if (!is_duration || !(WaitsForAll(each.op) || IsGrouped(each.op))) continue;
    HistogramSnapshot& sum = kinds[{each.kind, each.op, IsGrouped(each.op) ? -1 : each.size_class}];
    for (int cell = 0; cell < kHistogramCells; ++cell) {
      sum.cells[cell] += each.histogram.cells[cell];
    }
  }
  std::vector<UsualDurationSnapshot> usual;
  for (const auto& [kind, histogram] : kinds) {
    const uint64_t calls = histogram.Count();
    if (calls == 0 || usual.size() == kMostUsualDurations) continue;
    usual.push_back({std::get<0>(kind), std::get<1>(kind), std::get<2>(kind), calls,
                     static_cast<uint64_t>(UsualNs(histogram, calls))});
  }
  return usual;
}

}  // namespace nccl_pulse
