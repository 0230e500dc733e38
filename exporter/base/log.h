// Defines the log function that the plugin or program passes to the exporter, which calls it on any
// of its threads.
#ifndef EXPORTER_BASE_LOG_H_
#define EXPORTER_BASE_LOG_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {

enum class LogLevel { kInfo, kWarning };

// Logs a line. May be empty (no log), and may throw.
using LogFunction = std::function<void(LogLevel, const std::string&)>;

// Logs a warning once. Never throws, so that the caller can go on. Not thread-safe.
class OneWarning {
 public:
  explicit OneWarning(LogFunction log) : log_(std::move(log)) {}

  void Give(std::string_view message, std::string_view reason) noexcept {
    if (given_) return;
    given_ = true;
    try {
      if (log_) log_(LogLevel::kWarning, absl::StrCat(message, reason));
    } catch (...) {
      // Logging failed: nothing else can report it.
    }
  }

 private:
  const LogFunction log_;
  bool given_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_LOG_H_
