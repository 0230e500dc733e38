#include "exporter/node/run_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "exporter/diagnosis/rank_activity.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {
namespace {

// What follows "\nName:\t", up to the end of the line; "": there is no such line.
std::string_view FieldOf(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == status.npos) return "";
  const std::string_view value = status.substr(at + name.size());
  return value.substr(0, value.find('\n'));
}

RunState StateOf(std::string_view status) {
  if (FieldOf(status, "\nCoreDumping:\t") == "1") return RunState::kDumpingCore;
  const std::string_view state = FieldOf(status, "\nState:\t");
  switch (state.empty() ? '\0' : state.front()) {
    case 'T':
      return RunState::kStopped;
    case 't':
      return RunState::kTraced;
    case 'D':
      return RunState::kUninterruptible;
    case 'Z':
    case 'X':
      return RunState::kEnding;
    case 'R':
    case 'S':
    case 'I':
      return RunState::kRunning;
    default:
      return RunState::kUnknown;
  }
}

}  // namespace

RunState ReadRunState(pid_t pid) {
  if (pid <= 0) return RunState::kUnknown;
  const std::string path = absl::StrCat("/proc/", pid, "/status");
  char status[4096];
  ssize_t length = -1;
  {
    const ForkGuard guard;  // this file takes no lock that is held for long
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) length = read(file, status, sizeof(status));
    if (file >= 0) close(file);
  }
  return length <= 0 ? RunState::kUnknown
                     : StateOf(std::string_view(status, static_cast<std::size_t>(length)));
}

void AddRunState(pid_t pid, int64_t now_realtime_ns, int64_t stands_after_ns,
                 ProcessSnapshot* process) {
  const int64_t polled = process->last_poll_realtime_ns;
  if (process->end != ProcessEnd::kLive || process->poller != PollerState::kRunning ||
      polled == 0 || ElapsedNs(now_realtime_ns, polled) < stands_after_ns) {
    return;
  }
  process->run_state = ReadRunState(pid);
  if (process->run_state != RunState::kDumpingCore && process->run_state != RunState::kEnding) {
    return;
  }
  process->end = ProcessEnd::kLost;
  process->end_realtime_ns = polled;
}

}  // namespace nccl_pulse
