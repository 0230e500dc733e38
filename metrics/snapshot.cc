#include "metrics/snapshot.h"

namespace nccl_pulse {

const char* ProcessEndName(ProcessEnd end) {
  switch (end) {
    case ProcessEnd::kLive:
      return "live";
    case ProcessEnd::kExit:
      return "exit";
    case ProcessEnd::kLost:
      return "lost";
  }
  return "unknown";
}

const char* RunStateName(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kStopped:
      return "stopped";
    case RunState::kTraced:
      return "traced";
    case RunState::kUninterruptible:
      return "uninterruptible";
    case RunState::kDumpingCore:
      return "dumping_core";
    case RunState::kEnded:
      return "ended";
    case RunState::kFrozen:
      return "frozen";
    case RunState::kUnknown:
      break;
  }
  return "unknown";
}

const char* WhyNotRunning(RunState state) {
  switch (state) {
    case RunState::kStopped:
      return "stopped by a signal";
    case RunState::kTraced:
      return "held by a debugger";
    case RunState::kFrozen:
      return "frozen by its cgroup";
    default:
      return "";
  }
}

}  // namespace nccl_pulse
