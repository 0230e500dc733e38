// ReplayProcesses replays a folder of traces, each file in its own process, like the recorded run.
//
// The parent forks the processes before any thread exists and waits until all have read their
// traces. It starts them together, with the recorded offsets between their callbacks. Ctrl-C or
// SIGTERM ends all of them in order: communicators are finalized. If one fails, all end.
//
// Standard output gets the addresses that the plugin announces, and a line when all callbacks have
// been made; standard error gets the plugin's log and problems.
//
// Thread: call before any thread was started. Cost: a process per file, each holding its trace.
#ifndef BENCH_REPLAY_PROCESSES_H_
#define BENCH_REPLAY_PROCESSES_H_

#include <string>
#include <vector>

#include "bench/replay/driver.h"
#include "bench/replay/trace.h"

namespace nccl_pulse {

struct ProcessesOptions {
  std::vector<std::string> files;  // traces, one per process
  ReplayOptions replay;            // its logger and times are overwritten
  double hold_s = 0;               // how long the processes live after the last callback
};

// Returns a ReplayExit. Never throws; problems have been reported when it returns.
int ReplayProcesses(const ProcessesOptions& options);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_PROCESSES_H_
