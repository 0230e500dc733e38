// WorkFacts finds stalls of a communicator with CUDA graphs, by NCCL's counters of finished work
// (docs/work-counters.md) and the kernels that its GPUs have run meanwhile (GpuUse).
//
// A counter at rest is no hang: an engine without requests finishes nothing for hours, and its GPUs
// run nothing. So for a stall, all of this must hold for the last hang_after:
//   - all ranks are seen, and the counter of each is proven and at rest, or not available;
//   - some GPUs were always busy, and each other GPU has run nothing at all.
//
// A counter may not be available because a launching thread waits for room behind a replay. The
// launching thread then holds the driver's lock, which the reading thread needs. The GPU of such a
// rank is busy, but cannot have finished a collective without the ranks whose counters are at rest.
//
//   some GPUs are idle   the busy ones wait in a replay that the idle ones have not begun
//   no GPU is idle       the GPUs wait or compute, or hosts run ahead and hold the lock. It is a stall
//                        once it lasts longer than any earlier rest of the counters, including
//                        times when they were not readable
//
// A GPU that waits in NCCL's kernel is busy. Nothing is concluded if a GPU is shared with another
// process, or was partly busy.
//
// Thread: any, no state. Points into the communicator's view (rank_view.h).
#ifndef EXPORTER_DIAGNOSIS_FACTS_WORK_FACTS_H_
#define EXPORTER_DIAGNOSIS_FACTS_WORK_FACTS_H_

#include <cstdint>

#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

struct WorkFacts {
  // Empty unless the communicator is stalled.
  Ranks busy;                     // ranks whose GPU is busy: it waits in NCCL's kernel
  Ranks idle;                     // ranks whose GPU has run nothing
  Ranks unread;                   // busy or idle ranks without a readable counter
  uint64_t longest_pause_ns = 0;  // longest earlier rest of a counter, of all ranks
  int64_t since_ns = 0;           // last poll that saw a counter change

  bool is_stalled() const { return !busy.empty(); }
};

// True if some captured operation lets a rank leave before the others arrive.
bool MayLeaveReplays(const CommunicatorSnapshot& communicator);

WorkFacts CompareWork(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_WORK_FACTS_H_
