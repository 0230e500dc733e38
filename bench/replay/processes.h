// Replays a folder of traces, each file in a process of its own, as the recorded run had it.
//
// The parent forks the processes before any thread exists, waits until all have read their trace,
// starts them together (a process's callbacks come at the same offset from its peers' as when they
// were recorded), shows progress, passes on what the plugin logs, and reports the end of each.
// Ctrl-C or SIGTERM ends all of them in order: communicators are finalized. When one fails, so do
// the others.
//
// Standard output gets the addresses that the plugin announces and a line per finished stage;
// standard error gets progress and problems. On a terminal progress is one line that is updated;
// else a line every five seconds.
//
// Thread: call before any thread was started. Cost: a process per file, each holding its trace.
#ifndef BENCH_REPLAY_PROCESSES_H_
#define BENCH_REPLAY_PROCESSES_H_

#include <string>
#include <vector>

#include "bench/replay/driver.h"
#include "bench/replay/replay_error.h"

namespace nccl_pulse {

struct ProcessesOptions {
  std::vector<std::string> files;  // traces, one per process
  ReplayOptions replay;            // its logger and times are set here
  double hold_s = 0;               // how long the processes live on after the last callback
};

// Returns a ReplayExit. Never throws; problems have been reported when it returns.
int ReplayProcesses(const ProcessesOptions& options);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_PROCESSES_H_
