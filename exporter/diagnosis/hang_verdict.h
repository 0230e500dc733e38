// Decides, from the facts about one communicator (communicator_facts.h), which rank the others wait
// for. The result is data. What its ranks do in other communicators is looked at later
// (blocked_elsewhere.h).
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_HANG_VERDICT_H_
#define EXPORTER_DIAGNOSIS_HANG_VERDICT_H_

#include <cstdint>
#include <optional>

#include "exporter/diagnosis/communicator_facts.h"
#include "exporter/diagnosis/hang_finding.h"
#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

Conclusion Conclude(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_realtime_ns);

// For whom ranks waited that have ended. It is no hang of its own: it may be that nobody waits here
// any longer. But in other communicators others may wait for those ranks.
std::optional<HangFinding> ConcludeForEnded(const CommunicatorView& view, int64_t hang_after_ns,
                                            int64_t now_realtime_ns);

// The verdict where no launch is known to be in flight, but ranks stand in calls whose launches
// NCCL does not report.

// Empty when the ranks may simply have nothing to do.
Conclusion ConcludeUnreported(const CommunicatorFacts& facts);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HANG_VERDICT_H_
