// Whether a process of this host is alive, as the kernel says it. An open connection does not say so: a
// process that dumps its core keeps its sockets until that is written, for minutes perhaps, and so does
// a child of it that was made without fork's handlers.
//
// Thread: any. Cost: some system calls. Errors: kUnknown for what is not seen from here.
#ifndef EXPORTER_NODE_PROCESS_STATE_H_
#define EXPORTER_NODE_PROCESS_STATE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace nccl_pulse {

// By its pid as it is seen here, and its start, since a pid is used again.
struct ProcessId {
  pid_t pid = 0;       // 0: of a PID namespace that is not seen from here
  uint64_t start = 0;  // in clock ticks after the boot; 0: not known
};
// Of the process that has this pid now.
ProcessId ProcessIdOf(pid_t pid);

enum class ProcessState { kUnknown, kRuns, kStopped, kDumpsCore, kGone };
ProcessState StateOf(const ProcessId& process);
// It does nothing any more, whatever it still has open.
inline bool IsDead(ProcessState state) {
  return state == ProcessState::kDumpsCore || state == ProcessState::kGone;
}
// "is stopped"; "" where there is nothing to say.
std::string StateWords(ProcessState state);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PROCESS_STATE_H_
