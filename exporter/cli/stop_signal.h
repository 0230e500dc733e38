// StopOnSignal lets a signal end a command early, keeping what it has so far.
//
// Thread: main thread.
#ifndef EXPORTER_CLI_STOP_SIGNAL_H_
#define EXPORTER_CLI_STOP_SIGNAL_H_

#include <atomic>

namespace nccl_pulse {

// Returns a flag that SIGINT and SIGTERM set. The second signal ends the process.
const std::atomic<bool>* StopOnSignal();

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STOP_SIGNAL_H_
