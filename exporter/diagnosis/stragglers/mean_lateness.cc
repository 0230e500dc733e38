#include "exporter/diagnosis/stragglers/mean_lateness.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "metrics/histogram_geometry.h"

namespace nccl_pulse {

namespace {

const UsualDurationSnapshot* Find(const std::vector<UsualDurationSnapshot>& all,
                                  const UsualDurationSnapshot& kind) {
  const auto found = std::find_if(all.begin(), all.end(), [&kind](const auto& each) {
    return each.kind == kind.kind && each.size_class == kind.size_class && each.op == kind.op;
  });
  return found == all.end() || found->calls == 0 ? nullptr : &*found;
}

constexpr double kUsualShare = 0.98;

// Returns the middle of a cell, as the duration of a call in it.
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

MeanLateness MeanLatenessOf(const std::vector<const RankView*>& ranks, bool with_groups,
                            uint64_t rounds) {
  MeanLateness lateness;
  if (ranks.empty()) return lateness;
  std::vector<std::vector<UsualDurationSnapshot>> timed;
  timed.reserve(ranks.size());
  for (const RankView* rank : ranks) timed.push_back(UsualDurationsOf(*rank->communicator));
  double calls = 0;
  for (const UsualDurationSnapshot& kind : timed.front()) {
    if (IsGrouped(kind.op) && !with_groups) continue;
    // The mean durations are compared: endpoints are asked one after the other, so the counts
    // differ a little.
    std::vector<double> means;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    double sum = 0;
    for (const auto& of_rank : timed) {
      const UsualDurationSnapshot* found = Find(of_rank, kind);
      if (found == nullptr) break;
      least = std::min(least, found->calls);
      most = std::max(most, found->calls);
      means.push_back(static_cast<double>(found->ns) / static_cast<double>(found->calls));
      sum += means.back();
    }
    // A rank with a very different number of timed calls has other settings.
    if (means.size() < ranks.size() || most - least > least / 4) continue;
    const double mean = sum / static_cast<double>(ranks.size());
    for (double& each : means) each = mean - each;
    lateness.kinds.push_back({static_cast<double>(least), std::move(means)});
    calls += static_cast<double>(least);
  }
  if (calls == 0) return lateness;
  lateness.of_rank.resize(ranks.size());
  for (MeanLateness::OfKind& kind : lateness.kinds) {
    kind.part /= calls;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      lateness.of_rank[i] += kind.part * kind.of_rank[i];
    }
  }
  lateness.rounds = std::min(calls, static_cast<double>(rounds));
  return lateness;
}

std::vector<UsualDurationSnapshot> UsualDurationsOf(const CommunicatorSnapshot& communicator) {
  if (!communicator.usual_durations.empty()) return communicator.usual_durations;
  // A kind may have several user tags.
  std::map<std::tuple<LatencyKind, std::string, int>, HistogramSnapshot> kinds;
  for (const LatencySnapshot& each : communicator.latencies) {
    const bool is_duration =
        each.kind == LatencyKind::kDurationStream || each.kind == LatencyKind::kDurationKernel;
    if (!is_duration || !(WaitsForAll(each.op) || IsGrouped(each.op))) continue;
    kinds[{each.kind, each.op, IsGrouped(each.op) ? -1 : each.size_class}] += each.histogram;
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
