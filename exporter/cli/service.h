// Logging, signals, and reloading the web configuration on SIGHUP, for commands that run for long.
//
// Thread: LogLine any; the others main thread.
#ifndef EXPORTER_CLI_SERVICE_H_
#define EXPORTER_CLI_SERVICE_H_

#include <atomic>
#include <csignal>
#include <string>

#include "exporter/base/log.h"
#include "exporter/web/guard.h"

namespace nccl_pulse {

// Writes a line with a timestamp to standard error. Drops it if that would block: a stuck reader
// must not stall the service.
void LogLine(LogLevel level, const std::string& message);

// Blocks SIGTERM, SIGINT and SIGHUP, and returns them, for sigwait(3). Call before another thread
// exists.
sigset_t BlockEndingSignals();

// Returns a flag that the first SIGINT or SIGTERM sets, for commands that then write their output
// so far. A second one of the same kind ends the process.
const std::atomic<bool>* StopOnSignal();

// Reads the web configuration again, and logs the result. `guard`: null without a configuration.
void Reload(WebGuard* guard);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_SERVICE_H_
