#include "exporter/node/user_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {

UserLog::UserLog(LogFunction log) : log_(std::move(log)) {}

void UserLog::Log(uid_t user, LogLevel level, const std::string& line, Time now) {
  if (!log_) return;
  if (now >= counts_until_) {
    lines_.clear();
    counts_until_ = now + std::chrono::minutes(1);
  }
  if (lines_.size() == kMostUsers && lines_.count(user) == 0) return;
  const int lines = ++lines_[user];
  if (lines > kMostLines) {
    --lines_[user];
    return;
  }
  log_(level, lines < kMostLines ? line
                                 : absl::StrCat(line, "; further lines about user ", user,
                                                " are left out for up to a minute"));
}

}  // namespace nccl_pulse
