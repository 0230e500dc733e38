// Log writes messages for the job's user. Never call it in a callback.
//
// In init and finalize, while NCCL is calling, messages go through NCCL's own logger, to where the
// rest of its log is. At any other time (background threads) the logger must not be used, since
// libnccl may have been unloaded. Messages then go to standard error, as they do with NCCL versions
// that have no logger.
//
// Standard error may be a pipe or a terminal without a reader, and the background thread also logs.
// A line that cannot be written at once is dropped, and counted in the next line.
//
// Thread: any but a callback's. Cost: up to five system calls.
#ifndef PLUGIN_RUNTIME_LOG_H_
#define PLUGIN_RUNTIME_LOG_H_

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "metrics/atomic_cell.h"
#include "plugin/abi/common.h"

namespace nccl_pulse {

enum class LogVerbosity { kOff = 0, kWarn = 1, kInfo = 2 };

class Log {
 public:
  // Sets the level for standard error, used if there is no logger. With a logger, NCCL_DEBUG
  // decides, and kInfo adds a copy on standard error.
  void set_level(LogVerbosity level) { level_.store(level); }

  // `logger` may be null.
  void Warn(abi::DebugLogger logger, const std::string& message) const;
  void Info(abi::DebugLogger logger, const std::string& message) const;

 private:
  void WriteToStandardError(const char* level, const std::string& message) const;

  // If false, descriptor 2 may become any file that the job opens, so nothing is written to it.
  const bool had_standard_error_ = fcntl(STDERR_FILENO, F_GETFD) >= 0;
  mutable Relaxed<int> lost_{0};  // dropped lines since the last written one
  Relaxed<LogVerbosity> level_{LogVerbosity::kWarn};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_LOG_H_
