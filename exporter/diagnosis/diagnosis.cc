#include "exporter/diagnosis/diagnosis.h"

#include <optional>
#include <utility>

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/stragglers/job_stragglers.h"

namespace nccl_pulse {

DiagnosisResult Diagnosis::Update(const SnapshotSet& snapshots, int64_t now_realtime_ns,
                                  std::vector<CommunicatorView>* all_views) {
  const int64_t hang_after_ns = std::chrono::nanoseconds(hang_after_).count();
  std::vector<CommunicatorView> views = GroupByCommunicator(snapshots, now_realtime_ns);
  Jobs jobs(views);
  if (is_overridden_) {
    for (CommunicatorView& view : views) view.hang_after_ns = hang_after_ns;
  } else {
    SetThresholds(hang_after_ns, &jobs, &views);
  }
  ForgiveRejected(&jobs, &views);
  DiagnosisResult results = FindHangs(views, now_realtime_ns);
  std::vector<bool> hangs(views.size());  // by job
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (results[i].hang && !results[i].hang->is_usual) hangs[jobs.OfView(i)] = true;
  }
  StragglerStates kept;
  RoundsOfProcesses rounds;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const CommunicatorView& view = views[i];
    CommunicatorDiagnosis& result = results[i];
    if (view.is_mixed) continue;
    const std::pair key(view.comm_id, view.number);
    const auto found = stragglers_.find(key);
    // Stragglers of a job that is first seen in a hang are not reported. Its calls count later.
    if (found == stragglers_.end() && (result.hang || hangs[jobs.OfView(i)])) continue;
    StragglerState& state = kept[key];
    if (found != stragglers_.end()) state = std::move(found->second);
    state.Update(view, now_realtime_ns, &rounds);
    if (!result.hang) result.straggler = state.Find(view);
    if (result.straggler) {
      const RankView* late = view.Find(result.straggler->rank);
      result.straggler->first_step = FirstStepOfLate(late == nullptr ? nullptr : late->process);
    }
    if (!result.hang && !result.straggler) {
      result.perhaps_late = state.FindPerhaps(view);
      result.waited_share = view.spans_pipeline ? 0 : state.WaitedShare();
      result.window_seconds = state.SeenSeconds();
    }
  }
  ExcuseStragglers(views, &results);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const CommunicatorView& view = views[i];
    const auto found = kept.find({view.comm_id, view.number});
    if (found == kept.end()) continue;
    StragglerState& state = found->second;
    const std::optional<Straggler>& straggler = results[i].straggler;
    if (straggler && !results[i].has_named_straggler()) {
      for (const int32_t rank : straggler->ranks) state.Forgive(rank);
    }
    results[i].losses = state.Losses(view);
  }
  if (all_views != nullptr) *all_views = std::move(views);
  stragglers_ = std::move(kept);  // without the communicators that no longer exist
  return results;
}

}  // namespace nccl_pulse
