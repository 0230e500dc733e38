// Log, signals and reload of the web configuration (SIGHUP), for commands that run as a service.
//
// Thread: LogLine any; the others main thread.
#ifndef EXPORTER_CLI_SERVICE_H_
#define EXPORTER_CLI_SERVICE_H_

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

// Reads the web configuration again. `guard` may be null.
void Reload(WebGuard* guard);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_SERVICE_H_
