// Messages of a replay's child to its parent, which prints them: the plugin's log, and why the
// child failed.
//
// A message is one line in a pipe: a letter for its kind, then the text. Lines of several threads
// do not mix, up to PIPE_BUF bytes. A full pipe drops the message: a callback must never wait for
// this program's output.
//
// Thread: any; SetMessagePipe once, before the others.
#ifndef BENCH_REPLAY_CHILD_MESSAGES_H_
#define BENCH_REPLAY_CHILD_MESSAGES_H_

#include <string_view>

namespace nccl_pulse {

constexpr char kErrorMessage = 'E';
constexpr char kLogMessage = 'L';

// Call in the child. `fd`: the pipe's write end.
void SetMessagePipe(int fd);
void SendMessage(char kind, std::string_view text);

// True if NCCL_DEBUG asks for information.
bool ShowInformation();

// Stands in for NCCL's logger. Like NCCL, it always passes warnings, and information if NCCL_DEBUG
// asks for it. It also passes lines with an address, so that the user knows where to connect.
__attribute__((format(printf, 5, 6))) void LogToParent(int level, unsigned long flags,
                                                       const char* file, int line,
                                                       const char* format, ...);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_CHILD_MESSAGES_H_
