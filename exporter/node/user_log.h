// Limits log lines that other users cause: kMostLines per minute and user, for at most kMostUsers
// users. The limit is needed because a user can start and end processes at will, and each causes
// lines.
//
// Thread: server thread only.
#ifndef EXPORTER_NODE_USER_LOG_H_
#define EXPORTER_NODE_USER_LOG_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "exporter/base/log.h"

namespace nccl_pulse {

class UserLog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kMostLines = 64;
  static constexpr std::size_t kMostUsers = 64;

  explicit UserLog(LogFunction log);

  // Logs the line unless the limit is reached. A user's last line of a minute says that further
  // ones are left out.
  void Log(uid_t user, LogLevel level, const std::string& line, Time now);

 private:
  const LogFunction log_;
  Time counts_until_{};
  std::map<uid_t, int> lines_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_USER_LOG_H_
