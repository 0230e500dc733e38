#include "exporter/diagnosis/work_facts.h"

#include <algorithm>

namespace nccl_pulse {

WorkFacts CompareWork(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_ns) {
  WorkFacts facts;
  if (view.is_mixed || static_cast<int32_t>(view.ranks.size()) != view.nranks) return {};
  int64_t shortest_ns = INT64_MAX;
  for (const RankView& rank : view.ranks) {
    const WorkSnapshot& work = rank.communicator->work;
    const bool is_seen = rank.state == RankView::State::kLive && !rank.is_stopped &&
                         rank.failed == nullptr && rank.communicator->captured &&
                         work.state == WorkState::kProven && work.moved_realtime_ns != 0;
    if (!is_seen) return {};
    const int64_t stood_ns = ElapsedNs(now_ns, work.moved_realtime_ns);
    if (stood_ns < hang_after_ns) return {};
    shortest_ns = std::min(shortest_ns, stood_ns);
    facts.longest_pause_ns = std::max(facts.longest_pause_ns, work.longest_pause_ns);
    switch (work.gpu_use) {
      case GpuUse::kBusy:
        facts.busy.push_back(&rank);
        break;
      case GpuUse::kIdle:
        facts.idle.push_back(&rank);
        break;
      default:
        return {};
    }
  }
  if (facts.busy.empty()) return {};
  const bool is_unusual =
      static_cast<double>(shortest_ns) > static_cast<double>(facts.longest_pause_ns);
  return !facts.idle.empty() || is_unusual ? facts : WorkFacts{};
}

}  // namespace nccl_pulse
