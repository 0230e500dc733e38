#include "plugin/runtime/log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace nccl_pulse {
namespace {

// A pipe that poll finds writable has room for PIPE_BUF bytes, so a write of no more than that does
// not wait, unless another writer is faster: the descriptor is the job's, and not ours to make
// non-blocking. Writing to a pipe that is closed would raise SIGPIPE.
bool TakesALine() {
  pollfd polled = {STDERR_FILENO, POLLOUT, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & ~POLLOUT) == 0;
}

}  // namespace

void Log::WriteToStandardError(const char* level, const std::string& message) const {
  if (!TakesALine()) {
    lost_.fetch_add(1);
    return;
  }
  std::string line = std::string("NCCL Pulse ") + level + ": ";
  const int lost = lost_.exchange(0);
  if (lost > 0) line += "(standard error was full, lines lost: " + std::to_string(lost) + ") ";
  line += message;
  line.resize(std::min(line.size(), std::size_t{PIPE_BUF - 1}));
  line += '\n';
  // One write, so that lines of several processes do not mix.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) lost_.fetch_add(lost + 1);
}

void Log::Warn(abi::DebugLogger logger, const std::string& message) const {
  if (logger != nullptr) {
    logger(abi::kLogWarn, abi::kSubsystemProfile, "nccl-pulse", 0, "NCCL Pulse: %s",
           message.c_str());
  } else if (level_.load() >= LogVerbosity::kWarn) {
    WriteToStandardError("warning", message);
  }
}

void Log::Info(abi::DebugLogger logger, const std::string& message) const {
  if (logger != nullptr) {
    logger(abi::kLogInfo, abi::kSubsystemInit | abi::kSubsystemProfile, "nccl-pulse", 0,
           "NCCL Pulse: %s", message.c_str());
  }
  if (level_.load() >= LogVerbosity::kInfo) WriteToStandardError("info", message);
}

}  // namespace nccl_pulse
