#include "tests/node/stepped_clock.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

namespace nccl_pulse {
namespace {

std::atomic<long> g_step_s{0};

}  // namespace

void SetClock(long seconds) { g_step_s.store(seconds, std::memory_order_relaxed); }

}  // namespace nccl_pulse

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME && result == 0) {
    time->tv_sec += nccl_pulse::g_step_s.load(std::memory_order_relaxed);
  }
  return result;
}
