#include "exporter/base/proc_stat.h"

#include <unistd.h>

#include <ctime>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "exporter/base/realtime_clock.h"

namespace nccl_pulse {

ProcStat::ProcStat(std::string line) : line_(std::move(line)) {
  const std::size_t name_end = line_.rfind(") ");
  if (name_end == line_.npos) return;
  fields_ = absl::StrSplit(std::string_view(line_).substr(name_end + 2), ' ');
}

std::string_view ProcStat::Field(std::size_t number) const {
  constexpr std::size_t kFirst = 3;
  return number - kFirst < fields_.size() ? fields_[number - kFirst] : "";
}

int64_t ProcStat::StartRealtimeNs() const {
  constexpr std::size_t kStart = 22;
  constexpr int64_t kBillion = 1000000000;
  int64_t ticks = 0;
  if (!absl::SimpleAtoi(Field(kStart), &ticks)) return 0;
  timespec since_boot{};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return RealtimeNs() - (since_boot.tv_sec * kBillion + since_boot.tv_nsec) +
         ticks * (kBillion / sysconf(_SC_CLK_TCK));
}

RunState ProcStat::State() const {
  constexpr std::size_t kState = 3, kThreads = 20;
  const std::string_view state = Field(kState);
  if (state.size() != 1) return RunState::kUnknown;
  int threads = 0;
  switch (state[0]) {
    case 'T':
      return RunState::kStopped;
    case 't':
      return RunState::kTraced;
    case 'D':
      return RunState::kUninterruptible;
    case 'X':
      return RunState::kEnded;
    case 'Z':  // the first thread may end before the others
      return absl::SimpleAtoi(Field(kThreads), &threads) && threads > 1 ? RunState::kRunning
                                                                        : RunState::kEnded;
    default:
      return RunState::kRunning;
  }
}

}  // namespace nccl_pulse
