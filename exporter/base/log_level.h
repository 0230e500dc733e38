// Defines the log function that the plugin or program passes to the exporter, which calls it on any
// of its threads.
#ifndef EXPORTER_BASE_LOG_LEVEL_H_
#define EXPORTER_BASE_LOG_LEVEL_H_

#include <functional>
#include <string>

namespace nccl_pulse {

enum class LogLevel { kInfo, kWarning };

// Logs a line. May be empty (no log), and may throw.
using LogFunction = std::function<void(LogLevel, const std::string&)>;

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_LOG_LEVEL_H_
