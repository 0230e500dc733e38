#include "exporter/node/run_state.h"

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "exporter/base/read_file.h"
#include "exporter/diagnosis/rank_activity.h"

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
  const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  return status.empty() ? RunState::kUnknown : StateOf(status);
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
