// FinishedCalls counts a communicator's finished calls, including calls whose launch NCCL does not
// report: Broadcasts from 2.29.2 on.
//
// A kernel adds the work items of its batches to NCCL's counter (work_proof.h; src/device/common.h,
// 2.29.2 to 2.31.2: workCounter += nWorks). Each Broadcast is one item on every channel whose part
// of its bytes is not empty (ncclScheduleBcastTasksToPlan, src/scheduler/allgatherv_sched.cc). The
// first part is channel 0's, so channel 0 counts each Broadcast once, also where several share a
// launch. It counts each other collective that is alone in its launch (scheduleCollTasksToPlan,
// src/enqueue.cc).
//
// NCCL does not report the number of channels of a Broadcast. It follows from its bytes and the
// most bytes in its launch (ncclGetAlgoInfo), so it is one `width` if all Broadcasts have the same
// bytes.
//
//   since a moment with nothing in flight                                  conclusion
//   the other calls are the operations that NCCL reported, each alone      otherwise nothing is known
//   in its launch, and all Broadcasts have the same bytes
//   n Broadcasts; channel 0 grew by one for each call; 64 <= n             width = growth / n, rounded
//                                                                          up: only the last one of
//                                                                          a communicator is in
//                                                                          flight
//   all calls are complete as events show                                  width = growth / n
//   growth = n * width                                                     all calls have finished:
//                                                                          more could not be
//                                                                          counted
//
// Growth is that of the sum over channels, without the reported work. The growth is too small after
// a call that fails within NCCL, a kernel that does not count, or a tuner plugin that changes the
// channels of a size. Then nothing is known until events show that all calls are complete.
//
// Thread: one. Cost: some additions per poll of a proven counter.
#ifndef PLUGIN_CUDA_FINISHED_CALLS_H_
#define PLUGIN_CUDA_FINISHED_CALLS_H_

#include <cstdint>

#include "plugin/cuda/work_proof.h"

namespace nccl_pulse {

// Counts of the calls that a communicator has made. Counts may wrap.
struct CalledWork {
  uint32_t calls = 0;       // of all operations
  uint32_t broadcasts = 0;  // among them
  uint32_t run = 0;         // Broadcasts before the current run of Broadcasts with `bytes`
  uint64_t bytes = 0;
};

class FinishedCalls {
 public:
  // Takes a copy of the counter: `sum` over the channels, and `first` of channel 0. Read `called`
  // and `launched` after the copy. `is_over`: by CUDA events all calls are complete, and none was
  // made during the copy.
  void Look(uint64_t sum, uint64_t first, const CalledWork& called, const LaunchedWork& launched,
            bool is_over);
  // Returns the number of complete calls. Valid if is_known.
  uint32_t calls() const { return calls_; }
  bool is_known() const { return is_known_; }

 private:
  static constexpr uint64_t kProvesWidth = 64;  // Broadcasts; one per channel
  static_assert(kProvesWidth >= kWorkChannels);

  // The counts at the last moment with nothing in flight; initially the communicator's creation.
  struct Base {
    uint64_t sum = 0, first = 0;
    CalledWork called;
    LaunchedWork launched;
  } base_;
  uint64_t width_ = 0;  // 0: not known
  uint64_t bytes_ = 0;  // size of the Broadcasts with this width
  uint32_t calls_ = 0;
  bool is_known_ = false;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_FINISHED_CALLS_H_
