// Finds hangs, and the rank that the others of a communicator wait for, as far as the counts of the
// processes prove it.
//
//   facts      communicator_facts.h, facts/: what each rank is known to have done
//   waits      waits/arrows.h and graph.h: who waits for whom, over all communicators
//   findings   waits/finding.h: the roots, for each job; waits/stall.h: of each communicator
//   words      waits/sentences.h
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_HANG_H_
#define EXPORTER_DIAGNOSIS_WAITS_HANG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

struct WaitsOfCommunicator {
  std::optional<Hang> hang;
  std::optional<Queued> queued;
  std::string note;  // see CommunicatorDiagnosis
};

// One entry for each view. `hang_after_ns`: the threshold of each view, the same for all views of a job.
std::vector<WaitsOfCommunicator> FindHangs(const std::vector<CommunicatorView>& views,
                                           const std::vector<int64_t>& hang_after_ns,
                                           int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_HANG_H_
