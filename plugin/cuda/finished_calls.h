// FinishedCalls counts a communicator's finished calls, including calls whose launch NCCL does not
// report: Broadcasts from 2.29.2 on.
//
// On each channel, a kernel adds its finished work items to NCCL's counter (work_proof.h;
// src/device/common.h, 2.29.2 to 2.31.2: workCounter += nWorks). NCCL cuts the bytes of a Broadcast
// into one part per channel; each part that is not empty is one item (ncclScheduleBcastTasksToPlan,
// src/scheduler/allgatherv_sched.cc). The first part is on channel 0, so channel 0 counts each
// Broadcast once, even if several share a launch. Channel 0 also counts each other collective that
// is alone in its launch (scheduleCollTasksToPlan, src/enqueue.cc).
//
// NCCL does not report the number of channels of a Broadcast. The number follows from its bytes and
// from the most bytes in its launch (ncclGetAlgoInfo). So all Broadcasts of the same bytes have the
// same number, called their width.
//
// Each poll compares the counts with the counts at the last moment with nothing in flight. If
// events show that all calls are complete, this poll is the next such moment. The counter is
// evaluated only if all of this holds for the calls since the last one:
//   - NCCL reported each call that is not a Broadcast, alone in its launch;
//   - all Broadcasts have the same bytes;
//   - channel 0 grew by one for each call.
// Let n be the number of these Broadcasts, and growth the growth of the sum over all channels, less
// the work that NCCL reported.
//
//   observation                              conclusion
//   events show that all calls are complete  width = growth / n
//   n >= 64                                  width = growth / n, rounded up, because only the last
//                                            Broadcast can be incomplete
//   growth = n * width                       all calls have finished
//
// The growth is too small after a call that fails within NCCL, a kernel that does not count, or a
// tuner plugin that changes the number of channels for a size. Nothing is known then until events
// show that all calls are complete.
//
// Thread: one. Cost: some additions per poll of a proven counter.
#ifndef PLUGIN_CUDA_FINISHED_CALLS_H_
#define PLUGIN_CUDA_FINISHED_CALLS_H_

#include <cstdint>

#include "plugin/cuda/work_proof.h"

namespace nccl_pulse {

// Counts of the calls that a communicator has made. Counts may wrap.
struct CalledWork {
  uint32_t calls = 0;       // calls of all operations
  uint32_t broadcasts = 0;  // calls of Broadcast
  uint32_t run = 0;         // value of `broadcasts` before the latest run of equally large ones
  uint64_t bytes = 0;       // size of the Broadcasts in that run
};

class FinishedCalls {
 public:
  // Evaluates a copy of the counter. `sum`: sum over the channels. `first`: channel 0. Read
  // `called` and `launched` after making the copy. `is_over`: events show that all calls are
  // complete, and no call was made during the copy.
  void Look(uint64_t sum, uint64_t first, const CalledWork& called, const LaunchedWork& launched,
            bool is_over);
  // Returns the number of calls at the last moment with nothing in flight. Valid if is_known.
  uint32_t calls() const { return calls_; }
  bool is_known() const { return is_known_; }

 private:
  static constexpr uint64_t kProvesWidth = 64;  // Broadcasts that show their width
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
