// ReplayExit is how a replay ended; ReplayError adds why it failed.
#ifndef BENCH_REPLAY_REPLAY_ERROR_H_
#define BENCH_REPLAY_REPLAY_ERROR_H_

#include <string>

namespace nccl_pulse {

// Exit statuses of the program.
enum ReplayExit : int {
  kReplayDone = 0,
  kReplayUsage = 1,          // bad flags or arguments
  kReplayNoFolder = 2,       // the trace folder, or a file of it, cannot be read
  kReplayNoTrace = 3,        // the folder holds no trace file
  kReplayBrokenTrace = 4,    // a line of a trace is not a callback, or a file is not xz
  kReplayNoLibrary = 5,      // the library does not load
  kReplayNoSymbol = 6,       // the library does not export the requested API version
  kReplayCrashed = 7,        // a process was killed by a signal, or could not be started
  kReplayInterrupted = 130,  // Ctrl-C or SIGTERM
};

struct ReplayError {
  ReplayExit exit = kReplayDone;
  std::string text;
};

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_REPLAY_ERROR_H_
