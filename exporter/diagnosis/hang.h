// Hangs: which rank the others of a communicator wait for, if what the processes counted says so.
//
//   facts      communicator_facts.h, over rank_activity.h: what each rank is known to have done
//   verdict    hang_verdict.h for one communicator, blocked_elsewhere.h over several: data
//   measure    usual_wait.h: whether it has waited as long before
//   words      hang_words.h
//
// A rank hangs when work of its is in flight and has made no progress for `hang_after`. Then the
// ranks' calls are compared (call_counts.h). Where NCCL does not report launches, the calls alone
// are compared, when they have stood for as long.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_HANG_H_
#define EXPORTER_DIAGNOSIS_HANG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

struct WaitsOfCommunicator {
  std::optional<Hang> hang;
  std::optional<Queued> queued;
  std::string note;  // see CommunicatorDiagnosis
};

// One entry for each view.
std::vector<WaitsOfCommunicator> FindHangs(const std::vector<CommunicatorView>& views,
                                           int64_t hang_after_ns, int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HANG_H_
