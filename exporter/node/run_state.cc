#include "exporter/node/run_state.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/proc_stat.h"
#include "exporter/base/read_file.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {
namespace {

struct Stat {
  RunState state{};
  uint64_t start = 0;
};

// True if /proc shows this PID namespace. In a container it may show another one.
bool IsOwnProc() {
  std::array<char, 16> self{};
  return readlink("/proc/self", self.data(), self.size() - 1) > 0 &&
         std::string_view(self.data()) == absl::StrCat(getpid());
}

// Returns false if it cannot be read.
bool ReadStat(pid_t pid, Stat* stat) {
  constexpr std::size_t kStart = 22;
  if (pid <= 0 || !IsOwnProc()) return false;
  const ProcStat read(ReadFile(absl::StrCat("/proc/", pid, "/stat")));
  stat->state = read.State();
  return stat->state != RunState::kUnknown && absl::SimpleAtoi(read.Field(kStart), &stat->start);
}

}  // namespace

ProcessId ProcessIdOf(pid_t pid) {
  Stat stat;
  return {pid, ReadStat(pid, &stat) ? stat.start : 0};
}

RunState RunStateOf(const ProcessId& process) {
  if (process.pid <= 0) return RunState::kUnknown;
  if (kill(process.pid, 0) != 0 && errno == ESRCH) return RunState::kEnded;
  Stat stat;
  if (!ReadStat(process.pid, &stat)) return RunState::kUnknown;
  const bool is_another = process.start != 0 && stat.start != process.start;
  if (is_another || stat.state == RunState::kEnded) return RunState::kEnded;
  // From Linux 4.15 on.
  if (absl::StrContains(ReadFile(absl::StrCat("/proc/", process.pid, "/status")),
                        "\nCoreDumping:\t1\n")) {
    return RunState::kDumpingCore;
  }
  return stat.state;
}

std::string RunStateWords(RunState state) {
  switch (state) {
    case RunState::kStopped:
      return "is stopped";
    case RunState::kTraced:
      return "is held by a debugger";
    case RunState::kDumpingCore:
      return "is dumping core";
    case RunState::kEnded:
      return "has ended";
    case RunState::kRunning:
    case RunState::kUninterruptible:
    case RunState::kUnknown:
      break;
  }
  return "";
}

void AddRunState(pid_t pid, int64_t now_realtime_ns, int64_t stalled_after_ns,
                 ProcessSnapshot* process) {
  const int64_t polled = process->last_poll_realtime_ns;
  if (process->end != ProcessEnd::kLive || process->poller != PollerState::kRunning ||
      polled == 0 ||
      ElapsedNs(now_realtime_ns, polled) <
          ShorterThreshold(stalled_after_ns, process->hang_after_ns)) {
    return;
  }
  process->run_state = RunStateOf({pid, 0});
  if (!IsDead(process->run_state)) return;
  process->end = ProcessEnd::kLost;
  process->end_realtime_ns = polled;
}

}  // namespace nccl_pulse
