// RunChild is one process of a replay: it reads its trace, waits for the others, replays, and stays
// alive for the requested time.
//
// Thread: the child's main thread.
#ifndef BENCH_REPLAY_REPLAY_CHILD_H_
#define BENCH_REPLAY_REPLAY_CHILD_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "bench/replay/processes.h"

namespace nccl_pulse {

enum class Phase : int { kLoading, kReady, kReplaying, kReplayed };

// Memory that the parent and one child share.
//
//   child     kLoading --trace is read--> kReady ---start_ns---> kReplaying --> kReplayed
//   parent                                  when all are ready: run_first_ns, period_ns, start_ns
//
// `phase` (kReady, kReplayed) and `start_ns` publish the fields written before them. `progress` is
// relaxed.
struct SharedRun {
  std::atomic<Phase> phase{Phase::kLoading};
  // Written by the child, before kReady: recorded times of its first and last callback.
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  // Written by the parent, `start_ns` last. They become ReplayOptions' start_ns, first_ns (from
  // run_first_ns) and period_ns.
  std::atomic<int64_t> start_ns{0};
  int64_t run_first_ns = 0;
  int64_t period_ns = 0;
  ReplayProgress progress;
};

// Set by HandleStopSignals' handler of SIGINT and SIGTERM; parent and children each have their own.
extern std::atomic<bool> stop_requested;
void HandleStopSignals();

void SleepMs(int64_t ms);

// Main function of a child, which prints why it fails. Returns its exit status.
int RunChild(const std::string& file, const ProcessesOptions& options, SharedRun& shared);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_REPLAY_CHILD_H_
