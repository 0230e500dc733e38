// What a child of a replay has to say: the plugin's log, and why it failed. The parent prints it.
//
// A message is one line in a pipe: a letter for what it is, then the text. Lines of several threads
// do not mix, up to PIPE_BUF bytes. A full pipe costs the message: a callback must never wait for
// this program's output.
//
// Thread: any; SetMessagePipe once, before the others.
#ifndef BENCH_REPLAY_CHILD_MESSAGES_H_
#define BENCH_REPLAY_CHILD_MESSAGES_H_

#include <string_view>

namespace nccl_pulse {

constexpr char kErrorMessage = 'E';
constexpr char kLogMessage = 'L';

// In the child: `fd` is the pipe's end to write to.
void SetMessagePipe(int fd);
void SendMessage(char kind, std::string_view text);

// Whether NCCL_DEBUG asks for information.
bool ShowInformation();

// NCCL's logger. Like NCCL it passes warnings always and information if NCCL_DEBUG asks for it.
// Lines with an address pass too, because whoever replays wants to know where to look.
__attribute__((format(printf, 5, 6))) void LogToParent(int level, unsigned long flags,
                                                       const char* file, int line,
                                                       const char* format, ...);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_CHILD_MESSAGES_H_
