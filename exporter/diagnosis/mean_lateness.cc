#include "exporter/diagnosis/mean_lateness.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "exporter/diagnosis/usual_durations.h"

namespace nccl_pulse {
namespace {

const UsualDurationSnapshot* Find(const std::vector<UsualDurationSnapshot>& all,
                                  const UsualDurationSnapshot& kind) {
  const auto found = std::find_if(all.begin(), all.end(), [&kind](const auto& each) {
    return each.kind == kind.kind && each.size_class == kind.size_class && each.op == kind.op;
  });
  return found == all.end() || found->calls == 0 ? nullptr : &*found;
}

}  // namespace

MeanLateness MeanLatenessOf(const std::vector<const RankView*>& ranks, bool with_groups,
                            uint64_t rounds) {
  MeanLateness lateness;
  if (ranks.empty()) return lateness;
  std::vector<std::vector<UsualDurationSnapshot>> timed;
  timed.reserve(ranks.size());
  for (const RankView* rank : ranks) timed.push_back(UsualDurationsOf(*rank->communicator));
  std::vector<double> late_ns(ranks.size());
  double calls = 0;
  for (const UsualDurationSnapshot& kind : timed.front()) {
    if (IsGrouped(kind.op) && !with_groups) continue;
    // Of the mean durations: endpoints are asked one after the other, so the counts differ a little.
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
    // A rank that has timed otherwise has another setting.
    if (means.size() < ranks.size() || most - least > least / 4) continue;
    const double mean = sum / static_cast<double>(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      late_ns[i] += (mean - means[i]) * static_cast<double>(least);
    }
    calls += static_cast<double>(least);
  }
  if (calls == 0) return lateness;
  for (double& each : late_ns) each /= calls;
  lateness.of_rank = std::move(late_ns);
  lateness.rounds = std::min(calls, static_cast<double>(rounds));
  return lateness;
}

}  // namespace nccl_pulse
