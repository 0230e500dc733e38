// This is what NCCL's own counters of finished work say of one communicator whose calls were captured into
// CUDA graphs (docs/work-counters.md), together with what its GPUs have run meanwhile (GpuUse).
//
// A counter that stands is no hang: an engine without requests finishes nothing for hours. Then its
// GPUs run nothing. So all of this must hold for the last hang_after:
//
//   all ranks are seen, and the counter of each is proven and stands, or says nothing
//   some GPUs were busy all the time, and each of the others has run nothing at all
//
// A launching thread that waits for room behind a replay keeps the driver's lock, and so the thread
// that would read the counter. Such a rank has a busy GPU, and finishes nothing that another rank,
// whose counter stands, would have to finish with it.
//
//   some are idle   the busy ones wait in a replay, which those have not begun
//   none is         either they wait, or they compute, or hosts run ahead and keep the lock: it counts
//                   as a stall once that lasts longer than the counters have ever stood before, unread
//                   time included
//
// A GPU that waits in NCCL's kernel is busy. One that is shared with another process, or was partly
// busy, proves nothing: then nothing is concluded.
//
// Thread: any, no state. It points into the view.
#ifndef EXPORTER_DIAGNOSIS_FACTS_WORK_FACTS_H_
#define EXPORTER_DIAGNOSIS_FACTS_WORK_FACTS_H_

#include <cstdint>

#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

struct WorkFacts {
  // Both empty unless the communicator stands.
  Ranks busy;                     // wait, or would
  Ranks idle;                     // have run nothing
  Ranks unread;                   // of both: their counters cannot be read, or there are none
  uint64_t longest_pause_ns = 0;  // of all ranks, before
  int64_t since_ns = 0;           // when a counter was last seen to move

  bool stands() const { return !busy.empty(); }
};

// Operations were captured that a rank may leave before the others come.
bool MayLeaveReplays(const CommunicatorSnapshot& communicator);

WorkFacts CompareWork(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_WORK_FACTS_H_
