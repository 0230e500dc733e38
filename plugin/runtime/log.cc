#include "plugin/runtime/log.h"

#include <unistd.h>

namespace nccl_pulse {
namespace {

void WriteToStandardError(const char* level, const std::string& message) {
  // One write, so that lines of several processes do not mix. A full or closed pipe loses the
  // message and does no other harm.
  const std::string line = std::string("NCCL Pulse ") + level + ": " + message + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

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
