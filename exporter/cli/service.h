// Log, signals and reload of the web configuration (SIGHUP), for commands that run for long.
//
// Thread: LogLine any; the others main thread.
#ifndef EXPORTER_CLI_SERVICE_H_
#define EXPORTER_CLI_SERVICE_H_

#include <atomic>
#include <csignal>
#include <string>

#include "exporter/base/log_level.h"
#include "exporter/web/guard.h"

namespace nccl_pulse {

// Writes a line with a timestamp. Drops it if standard error would block: a reader that is stuck
// must not stall the service.
void LogLine(LogLevel level, const std::string& message);

// Blocks SIGTERM, SIGINT and SIGHUP and returns them, to wait for. Call before another thread
// exists.
sigset_t BlockEndingSignals();

// Returns a flag that SIGINT and SIGTERM set, to end early and keep what is there. The second signal
// ends the process.
const std::atomic<bool>* StopOnSignal();

// Reads the web configuration again. `guard` may be null.
void Reload(WebGuard* guard);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_SERVICE_H_
