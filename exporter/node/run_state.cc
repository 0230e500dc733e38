#include "exporter/node/run_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/cgroup.h"
#include "exporter/base/descriptor.h"
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
bool ReadStat(pid_t pid, const std::string& proc, Stat* stat) {
  constexpr std::size_t kStart = 22;
  if (pid <= 0 || !IsOwnProc()) return false;
  const Descriptor folder(
      open(absl::StrCat(proc, "/", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const ProcStat read(ReadFileAt(folder.get(), "stat", 4096));
  stat->state = RunStateIn(read, folder.get(), absl::StrCat(proc, "/../sys/fs/cgroup"));
  // From Linux 4.15 on.
  if (stat->state != RunState::kEnded &&
      absl::StrContains(ReadFileAt(folder.get(), "status", 16384), "\nCoreDumping:\t1\n")) {
    stat->state = RunState::kDumpingCore;
  }
  return stat->state != RunState::kUnknown && absl::SimpleAtoi(read.Field(kStart), &stat->start);
}

}  // namespace

ProcessId ProcessIdOf(pid_t pid) {
  Stat stat;
  return {pid, ReadStat(pid, "/proc", &stat) ? stat.start : 0};
}

RunState RunStateOf(const ProcessId& process, const std::string& proc) {
  if (process.pid <= 0) return RunState::kUnknown;
  if (kill(process.pid, 0) != 0 && errno == ESRCH) return RunState::kEnded;
  Stat stat;
  if (!ReadStat(process.pid, proc, &stat)) return RunState::kUnknown;
  const bool is_another = process.start != 0 && stat.start != process.start;
  return is_another ? RunState::kEnded : stat.state;
}

std::string RunStateWords(RunState state) {
  if (state == RunState::kDumpingCore) return "is dumping core";
  if (state == RunState::kEnded) return "has ended";
  const char* const why = WhyNotRunning(state);
  return *why == '\0' ? "" : absl::StrCat("is ", why);
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
