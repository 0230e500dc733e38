// Logs a warning once. Never throws, so that the caller can go on.
//
// Not thread-safe.
#ifndef EXPORTER_BASE_ONE_WARNING_H_
#define EXPORTER_BASE_ONE_WARNING_H_

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/log_level.h"

namespace nccl_pulse {

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

#endif  // EXPORTER_BASE_ONE_WARNING_H_
