// RunChild is one process of a replay: it reads its trace, waits for the others, replays, and stays
// alive for the requested time.
//
// Thread: the child's only one.
#ifndef BENCH_REPLAY_REPLAY_CHILD_H_
#define BENCH_REPLAY_REPLAY_CHILD_H_

#include <string>

#include "bench/replay/processes.h"
#include "bench/replay/shared_run.h"

namespace nccl_pulse {

// Main function of a child. Returns its exit status; the reason of a failure was sent to the
// parent.
int RunChild(const std::string& file, const ProcessesOptions& options, SharedRun& shared);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_REPLAY_CHILD_H_
