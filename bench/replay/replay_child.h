// One process of a replay: reads its trace, waits for the others, replays, and lives on for as long
// as it was asked to.
//
// Thread: the child's only one.
#ifndef BENCH_REPLAY_REPLAY_CHILD_H_
#define BENCH_REPLAY_REPLAY_CHILD_H_

#include <string>

#include "bench/replay/processes.h"
#include "bench/replay/shared_run.h"

namespace nccl_pulse {

// A child's whole life. Returns its exit status; why it failed has been sent to the parent.
int RunChild(const std::string& file, const ProcessesOptions& options, SharedRun& shared);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_REPLAY_CHILD_H_
