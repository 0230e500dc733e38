#include "exporter/node/run_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/descriptor.h"
#include "exporter/base/proc.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {
namespace {

// True if /proc shows this PID namespace. In a container it may show another one.
bool IsOwnProc() {
  std::array<char, 16> self{};
  return readlink("/proc/self", self.data(), self.size() - 1) > 0 &&
         std::string_view(self.data()) == absl::StrCat(getpid());
}

// Opens the process' folder. Returns -1 if the process is not visible here.
int OpenProcess(pid_t pid, const std::string& proc) {
  if (pid <= 0 || !IsOwnProc()) return -1;
  return open(absl::StrCat(proc, "/", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Returns the time of the process' start, in clock ticks since the boot; null if it can't be read.
std::optional<uint64_t> StartOf(const ProcStat& stat) {
  constexpr std::size_t kStart = 22;
  uint64_t start = 0;
  const bool is_read =
      stat.State() != RunState::kUnknown && absl::SimpleAtoi(stat.Field(kStart), &start);
  return is_read ? std::optional(start) : std::nullopt;
}

RunState StateOf(const ProcessId& process, const std::string& proc, bool may_be_frozen) {
  if (process.pid <= 0) return RunState::kUnknown;
  if (kill(process.pid, 0) != 0 && errno == ESRCH) return RunState::kEnded;
  const Descriptor folder(OpenProcess(process.pid, proc));
  const ProcStat stat(ReadFileAt(folder.get(), "stat", 4096));
  const std::optional<uint64_t> start = StartOf(stat);
  if (!start) return RunState::kUnknown;
  if (process.start != 0 && *start != process.start) return RunState::kEnded;
  const RunState state =
      may_be_frozen ? RunStateIn(stat, folder.get(), absl::StrCat(proc, "/../sys/fs/cgroup"))
                    : stat.State();
  // From Linux 4.15 on.
  const bool is_dumping_core =
      state != RunState::kEnded &&
      absl::StrContains(ReadFileAt(folder.get(), "status", 16384), "\nCoreDumping:\t1\n");
  return is_dumping_core ? RunState::kDumpingCore : state;
}

}  // namespace

ProcessId ProcessIdOf(pid_t pid) {
  const Descriptor folder(OpenProcess(pid, "/proc"));
  return {pid, StartOf(ProcStat(ReadFileAt(folder.get(), "stat", 4096))).value_or(0)};
}

RunState RunStateOf(const ProcessId& process, const std::string& proc) {
  return StateOf(process, proc, /*may_be_frozen=*/true);
}

bool IsDead(const ProcessId& process) {
  return IsDead(StateOf(process, "/proc", /*may_be_frozen=*/false));
}

std::string RunStateWords(RunState state) {
  if (state == RunState::kDumpingCore) return "is dumping core";
  if (state == RunState::kEnded) return "has ended";
  const char* const why = WhyNotRunning(state);
  return *why == '\0' ? "" : absl::StrCat("is ", why);
}

void AddRunState(pid_t pid, int64_t now_realtime_ns, ProcessSnapshot* process) {
  const int64_t polled = process->last_poll_realtime_ns;
  if (process->end != ProcessEnd::kLive || process->poller != PollerState::kRunning ||
      polled == 0 || ElapsedNs(now_realtime_ns, polled) < kLeastHangAfterNs) {
    return;
  }
  process->run_state = RunStateOf({pid, 0});
  if (!IsDead(process->run_state)) return;
  process->end = ProcessEnd::kLost;
  process->end_realtime_ns = polled;
}

}  // namespace nccl_pulse
