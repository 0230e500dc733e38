// What `pulse replay` and `pulse demo` have in common: flags, and how they become options.
//
// Thread: main thread only.
#ifndef EXPORTER_CLI_REPLAY_OPTIONS_H_
#define EXPORTER_CLI_REPLAY_OPTIONS_H_

#include <string>

#include "plugin/replay/processes.h"

namespace nccl_pulse {

// Sets library, API version and clock from their flags, and the traces of `folder`. Returns
// kReplayDone, or the exit status after a message on standard error.
int FillReplayOptions(const std::string& folder, ProcessesOptions* options);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_REPLAY_OPTIONS_H_
