// This asks the kernel about a process of this host. An open connection does not say that its
// process lives: one that dumps its core keeps its sockets for minutes, and so does a child that
// was made without fork's handlers. A background thread that stands does not say that its process
// is stopped.
//
// Thread: any. Cost: some system calls, and two small files of /proc. Errors: kUnknown for what is
// not seen from here.
#ifndef EXPORTER_NODE_RUN_STATE_H_
#define EXPORTER_NODE_RUN_STATE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// A process is known by its pid as it is seen here, and its start, since a pid is used again.
struct ProcessId {
  pid_t pid = 0;       // 0: of a PID namespace that is not seen from here
  uint64_t start = 0;  // in clock ticks after the boot; 0: not known
};
// Identifies the process that has this pid now.
ProcessId ProcessIdOf(pid_t pid);

RunState RunStateOf(const ProcessId& process);
// It does nothing any more, whatever it still has open.
inline bool IsDead(RunState state) {
  return state == RunState::kDumpingCore || state == RunState::kEnded;
}
// "is stopped"; "" where there is nothing to say.
std::string RunStateWords(RunState state);

// Asks it of a process whose background thread has stood for `stands_after_ns`. One that is dead is
// marked as ended.
void AddRunState(pid_t pid, int64_t now_realtime_ns, int64_t stands_after_ns,
                 ProcessSnapshot* process);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_RUN_STATE_H_
