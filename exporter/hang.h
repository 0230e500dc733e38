// Hangs: which rank the others of a communicator wait for, if what the processes counted says so.
//
// A rank hangs when work of its is in flight and has made no progress for `hang_after`. Then the
// ranks' calls are compared. Collectives are called by all ranks in one order, so of two ranks one
// has called a beginning of what the other has called: with counts per (operation, size class), one
// rank's are nowhere larger than the other's. Counts that are not so prove that the ranks called
// different things; counts that are so say which calls a rank still owes.
//
// Thread: any, no state.
#ifndef EXPORTER_HANG_H_
#define EXPORTER_HANG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/diagnosis_result.h"
#include "exporter/rank_view.h"

namespace nccl_pulse {

// How long a process' background thread may not have looked (it does every 20 to 100 ms) until its
// process counts as stopped; at most `hang_after`.
inline constexpr int64_t kStoppedAfterNs = 5000000000;

// One entry for each view.
std::vector<std::optional<Hang>> FindHangs(const std::vector<CommunicatorView>& views,
                                           int64_t hang_after_ns, int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_HANG_H_
