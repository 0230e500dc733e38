// SharedRun is memory that the parent and one child of a replay share.
//
//   child     kLoading --trace is read--> kReady ---start_ns---> kReplaying --> kReplayed
//   parent                                  when all are ready: run_first_ns, period_ns, start_ns
//
// Accesses are relaxed except for `phase` and `start_ns`, which publish the fields written before
// them.
#ifndef BENCH_REPLAY_SHARED_RUN_H_
#define BENCH_REPLAY_SHARED_RUN_H_

#include <atomic>
#include <cstdint>

#include "bench/replay/driver.h"

namespace nccl_pulse {

enum class Phase : int { kLoading, kReady, kReplaying, kReplayed };

struct SharedRun {
  std::atomic<Phase> phase{Phase::kLoading};
  int64_t first_ns = 0;  // by the child, before kReady
  int64_t last_ns = 0;
  uint64_t callbacks_in_trace = 0;
  std::atomic<int64_t> start_ns{0};  // by the parent, after the values below
  int64_t run_first_ns = 0;
  int64_t period_ns = 0;
  ReplayProgress progress;
};

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_SHARED_RUN_H_
