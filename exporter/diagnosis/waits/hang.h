// FindHangs finds hangs, and the ranks that block the others, as far as facts show them.
//
//   facts      facts/communicator_facts.h: what each rank is known to have done
//   waits      waits/arrows.h, graph.h: the graph of waits over all communicators
//   findings   waits/finding.h: the roots of each job; waits/stall.h: each communicator's stall
//   words      waits/sentences.cc: the findings as sentences
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_HANG_H_
#define EXPORTER_DIAGNOSIS_WAITS_HANG_H_

#include <cstdint>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

// Returns one entry per view, with its hang, queue and note. All views of a job must have the same
// threshold.
DiagnosisResult FindHangs(const std::vector<CommunicatorView>& views, int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_HANG_H_
