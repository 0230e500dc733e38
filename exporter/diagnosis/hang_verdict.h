// The verdict on one communicator, from the facts (communicator_facts.h), as data. What its ranks
// do in other communicators comes later (blocked_elsewhere.h).
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_HANG_VERDICT_H_
#define EXPORTER_DIAGNOSIS_HANG_VERDICT_H_

#include <cstdint>
#include <optional>

#include "exporter/diagnosis/hang_finding.h"
#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

struct Conclusion {
  std::optional<HangFinding> hang;
  std::optional<QueuedFinding> queued;  // never beside a hang
  std::optional<AheadFinding> ahead;    // nor this
};

Conclusion Conclude(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HANG_VERDICT_H_
