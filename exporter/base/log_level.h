// How the parts of the endpoint log: through a function that the plugin or the program gives them.
// Called on the server's thread, or on the caller's of Server::Start.
#ifndef EXPORTER_BASE_LOG_LEVEL_H_
#define EXPORTER_BASE_LOG_LEVEL_H_

#include <functional>
#include <string>

namespace nccl_pulse {

enum class LogLevel { kInfo, kWarning };

// May be empty, may throw.
using LogFunction = std::function<void(LogLevel, const std::string&)>;

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_LOG_LEVEL_H_
