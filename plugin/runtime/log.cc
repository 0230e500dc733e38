#include "plugin/runtime/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>

namespace nccl_pulse {
namespace {

// True if standard error can take a line now. A pipe without a reader would raise SIGPIPE.
bool MayWrite() {
  pollfd polled = {STDERR_FILENO, POLLOUT, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & ~POLLOUT) == 0;
}

// Writes a line to standard error without waiting for a reader. Returns write()'s result. The
// descriptor belongs to the job, so it may not be made non-blocking, and poll does not suffice:
// another writer may fill a pipe before our write, and a terminal may take only a part of the line.
// So a pipe or a terminal is opened once more, if that is allowed. A regular file is written
// directly: that waits for no reader, and the file position belongs to the descriptor.
ssize_t WriteAtOnce(const std::string& line) {
  if (!MayWrite()) return -1;
  struct stat status {};
  if (fstat(STDERR_FILENO, &status) != 0) return -1;
  if (S_ISSOCK(status.st_mode)) {
    return send(STDERR_FILENO, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  const bool is_terminal = S_ISCHR(status.st_mode);
  const int own = is_terminal || S_ISFIFO(status.st_mode)
                      ? open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                      : -1;
  // Another user's terminal, after su: a write may take a part of the line, then block.
  if (is_terminal && own < 0) return -1;
  const ssize_t written = write(own < 0 ? STDERR_FILENO : own, line.data(), line.size());
  if (own >= 0) close(own);
  return written;
}

}  // namespace

void Log::WriteToStandardError(const char* level, const std::string& message) const {
  if (!had_standard_error_) return;
  std::string line = std::string("NCCL Pulse ") + level + ": ";
  const int lost = lost_.exchange(0);
  if (lost > 0) line += "(standard error was full, lines lost: " + std::to_string(lost) + ") ";
  line += message;
  line.resize(std::min(line.size(), std::size_t{PIPE_BUF - 1}));
  line += '\n';
  // One write, so that lines of several processes do not mix. No more than PIPE_BUF bytes: a pipe
  // takes them together or not at all.
  if (WriteAtOnce(line) != static_cast<ssize_t>(line.size())) lost_.fetch_add(lost + 1);
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
