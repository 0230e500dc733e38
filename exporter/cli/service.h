// What the commands that run as a service have in common: their log, their signals, and the web
// configuration that SIGHUP reads again.
//
// Thread: LogLine any; the others the main one.
#ifndef EXPORTER_CLI_SERVICE_H_
#define EXPORTER_CLI_SERVICE_H_

#include <csignal>
#include <string>

#include "exporter/base/log_level.h"
#include "exporter/web/guard.h"

namespace nccl_pulse {

// Writes a line with its time, so that the log can be read on its own. One that standard error does
// not take now is dropped: who does not read it must not hold up the service.
void LogLine(LogLevel level, const std::string& message);

// SIGTERM, SIGINT and SIGHUP, which are blocked from now on, to be waited for. Before another
// thread exists.
sigset_t BlockEndingSignals();

// `guard` may be null.
void Reload(WebGuard* guard);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_SERVICE_H_
