#include "exporter/diagnosis/diagnosis.h"

#include <algorithm>
#include <utility>

#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {
DiagnosisResult Diagnosis::Update(const SnapshotSet& snapshots, int64_t now_realtime_ns) {
  const int64_t hang_after_ns = std::chrono::nanoseconds(hang_after_).count();
  std::vector<CommunicatorView> views = GroupByCommunicator(snapshots, now_realtime_ns);
  std::vector<WaitsOfCommunicator> waits = FindHangs(views, hang_after_ns, now_realtime_ns);
  DiagnosisResult results;
  results.reserve(views.size());
  StragglerStates kept;
  RoundsOfProcesses rounds;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const CommunicatorView& view = views[i];
    CommunicatorDiagnosis& result = results.emplace_back();
    result.comm_id = view.comm_id;
    result.number = view.number;
    result.hang = std::move(waits[i].hang);
    result.queued = std::move(waits[i].queued);
    result.note = std::move(waits[i].note);
    if (view.is_mixed) continue;
    const std::pair key(view.comm_id, view.number);
    StragglerState& state = kept[key];
    if (const auto found = stragglers_.find(key); found != stragglers_.end()) {
      state = std::move(found->second);
    }
    state.Update(view, now_realtime_ns, &rounds);
    result.losses = state.Losses(view);
    if (!result.hang) result.straggler = state.Find(view);
    if (!result.hang && !result.straggler) result.perhaps_late = state.FindPerhaps(view);
  }
  stragglers_ = std::move(kept);  // without the communicators that are no more
  return results;
}

}  // namespace nccl_pulse
