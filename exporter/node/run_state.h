// Asks the kernel about a process of this host.
//
// An open connection does not prove that the process at the other end lives: a process that dumps
// core keeps its sockets for minutes, and a child created without fork handlers keeps its parent's.
// A stalled background thread does not prove that its process is stopped.
//
// Thread: any. Cost: some system calls and four small files. Errors: kUnknown for processes
// that are not visible here.
#ifndef EXPORTER_NODE_RUN_STATE_H_
#define EXPORTER_NODE_RUN_STATE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Identifies a process by pid, as seen here, and start time, since pids are reused.
struct ProcessId {
  pid_t pid = 0;       // 0: in a PID namespace that is not visible here
  uint64_t start = 0;  // clock ticks since boot; 0: not known
};
// Returns the identity of the process that has this pid now.
ProcessId ProcessIdOf(pid_t pid);

RunState RunStateOf(const ProcessId& process, const std::string& proc = "/proc");
// True if the process runs no more code, even if its descriptors are open.
inline bool IsDead(RunState state) {
  return state == RunState::kDumpingCore || state == RunState::kEnded;
}
// Cheaper than RunStateOf: does not read the cgroup.
bool IsDead(const ProcessId& process);
// Returns words such as "is stopped"; "" for states not worth a mention.
std::string RunStateWords(RunState state);

// Sets the run state of a process whose background thread has been stalled for kLeastHangAfterNs.
// Marks a dead process as ended.
void AddRunState(pid_t pid, int64_t now_realtime_ns, ProcessSnapshot* process);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_RUN_STATE_H_
