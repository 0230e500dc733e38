// Which calls of a communicator have finished, where NCCL reports only the call of some: Broadcast
// from 2.29.2 on, also on non-blocking communicators and in groups of Broadcasts alone.
//
// A kernel adds the work items of its batches to NCCL's counter (work_proof.h; src/device/common.h,
// 2.29.2 to 2.31.2: workCounter += nWorks). Each Broadcast is one item on every channel whose part of
// its bytes is not empty (ncclScheduleBcastTasksToPlan, src/scheduler/allgatherv_sched.cc). The first
// part is channel 0's, so channel 0 counts each Broadcast once, also where several share a launch. It
// counts each other collective that is alone in its launch (scheduleCollTasksToPlan, src/enqueue.cc).
//
// How many channels a Broadcast uses, NCCL does not tell. It follows from its bytes and the most bytes
// in its launch (ncclGetAlgoInfo): it is one `width`, if all Broadcasts have the same bytes.
//
//   since a moment when nothing was in flight                              then
//   the other calls are the operations that NCCL reported, each alone      else nothing is known
//   in its launch, and all Broadcasts have the same bytes
//   n Broadcasts; channel 0 grew by one for each call; 64 <= n             width = growth / n, rounded
//                                                                          up: only the last one of a
//                                                                          communicator is in flight
//   all calls are complete as events show                                  width = growth / n
//   growth = n * width                                                     all calls have finished:
//                                                                          more could not be counted
//
// Growth is that of the sum over channels, without the reported work. A call that fails within NCCL,
// and one whose kernel does not count, leaves it too small: nothing is known then, until all calls are
// complete as events show. So it does if a tuner plugin changes the channels of a size.
//
// Thread: one. Cost: some additions for each look at a proven counter.
#ifndef PLUGIN_CUDA_FINISHED_CALLS_H_
#define PLUGIN_CUDA_FINISHED_CALLS_H_

#include <cstdint>

#include "plugin/cuda/work_proof.h"

namespace nccl_pulse {

// What a communicator has called; all counts may wrap.
struct CalledWork {
  uint32_t calls = 0;       // of all operations
  uint32_t broadcasts = 0;  // among them
  uint32_t run = 0;         // Broadcasts in front of the last ones in a row that have `bytes`
  uint64_t bytes = 0;
};

class FinishedCalls {
 public:
  // What a copy of the counter says: the sum over channels, and channel 0. `called` and `launched` are
  // read behind it. `is_over`: all calls are complete, as events show, and none came during the copy.
  void Look(uint64_t sum, uint64_t first, const CalledWork& called, const LaunchedWork& launched,
            bool is_over);
  // That many calls are complete; good once is_known.
  uint32_t calls() const { return calls_; }
  bool is_known() const { return is_known_; }

 private:
  static constexpr uint64_t kProvesWidth = 64;  // as many as there are channels
  static_assert(kProvesWidth >= kWorkChannels);

  // When nothing was in flight: at first when the communicator was made.
  struct Base {
    uint64_t sum = 0, first = 0;
    CalledWork called;
    LaunchedWork launched;
  } base_;
  uint64_t width_ = 0;  // 0: not known
  uint64_t bytes_ = 0;  // of Broadcasts that have it
  uint32_t calls_ = 0;
  bool is_known_ = false;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_FINISHED_CALLS_H_
