// What is asked of a replay in several processes, and how it can end.
#ifndef PLUGIN_REPLAY_PROCESSES_OPTIONS_H_
#define PLUGIN_REPLAY_PROCESSES_OPTIONS_H_

#include <string>
#include <vector>

#include "plugin/replay/driver.h"

namespace nccl_pulse {

// Exit status of `pulse replay` and `pulse demo`.
enum ReplayExit : int {
  kReplayDone = 0,
  kReplayUsage = 1,          // bad flags or arguments
  kReplayNoFolder = 2,       // the trace folder, or a file of it, cannot be read
  kReplayNoTrace = 3,        // the folder holds no trace file
  kReplayBrokenTrace = 4,    // a line of a trace is not a callback, or a file is not xz
  kReplayNoLibrary = 5,      // the library does not load
  kReplayNoSymbol = 6,       // the library does not export the asked-for version of the API
  kReplayCrashed = 7,        // a process was killed by a signal or ended by itself
  kReplayInterrupted = 130,  // Ctrl-C or SIGTERM
};

struct ProcessesOptions {
  std::vector<std::string> files;  // traces, one per process
  ReplayOptions replay;            // its logger and times are set here
  double hold_s = 0;               // how long the processes live on after the last callback
};

}  // namespace nccl_pulse

#endif  // PLUGIN_REPLAY_PROCESSES_OPTIONS_H_
