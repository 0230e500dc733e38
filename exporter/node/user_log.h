// Log lines that other users cause, at most kMostLines a minute for each of them and for kMostUsers of
// them: processes that come and go cost their user nothing.
//
// Thread: the server's.
#ifndef EXPORTER_NODE_USER_LOG_H_
#define EXPORTER_NODE_USER_LOG_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "exporter/base/log_level.h"

namespace nccl_pulse {

class UserLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kMostLines = 64;
  static constexpr std::size_t kMostUsers = 64;

  explicit UserLog(LogFunction log);

  // The line, or nothing. A user's last line of a minute says that it is the last.
  void Log(uid_t user, LogLevel level, const std::string& line, Time now);

 private:
  const LogFunction log_;
  Time counts_until_{};
  std::map<uid_t, int> lines_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_USER_LOG_H_
