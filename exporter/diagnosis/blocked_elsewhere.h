// Follows a hang from one communicator to the next. A rank that has not called may itself wait in
// another communicator. Then it is not the cause: the rank that it waits for is.
//
// Two ranks wait together when they are of one process and use one GPU. Where it is not known
// whether they use the same GPU, they are taken for ranks that may.
//
// Ranks that wait for each other in a circle are a verdict of their own (kCircularWait), if each
// step is certain. If one is not, every suspect in the circle stays one.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_BLOCKED_ELSEWHERE_H_
#define EXPORTER_DIAGNOSIS_BLOCKED_ELSEWHERE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

// `findings`: one for each view.
void FollowWaits(const std::vector<CommunicatorView>& views, int64_t hang_after_ns,
                 int64_t now_realtime_ns, std::vector<std::optional<HangFinding>>* findings);

// A communicator other than `here` on a GPU of one of the ranks, in which work may stand unseen.
std::optional<uint64_t> UnseenElsewhere(const std::vector<CommunicatorView>& views,
                                        std::size_t here, const Ranks& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_BLOCKED_ELSEWHERE_H_
