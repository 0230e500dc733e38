// What the kernel says of a process that its plugin's background thread says nothing of any more:
// whether it is stopped, held by a debugger, in a driver, or dead already. A thread that stands is no
// stopped process.
//
// Thread: any. Cost: one small file of /proc. Errors: kUnknown.
#ifndef EXPORTER_NODE_RUN_STATE_H_
#define EXPORTER_NODE_RUN_STATE_H_

#include <sys/types.h>

#include <cstdint>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// `pid` counts in this process' PID namespace; 0: it is none of that.
RunState ReadRunState(pid_t pid);

// Asks it of a process whose background thread has stood for `stands_after_ns`. One that is dead for
// all that matters is marked as ended: it dumps core, or is a zombie.
void AddRunState(pid_t pid, int64_t now_realtime_ns, int64_t stands_after_ns,
                 ProcessSnapshot* process);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_RUN_STATE_H_
