// Defines clock_gettime for the whole process, see recorded_clock.h.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "bench/replay/recorded_clock.h"

namespace {

using ClockGettime = int (*)(clockid_t, timespec*);

// Returns the next definition in search order: libc's, which needs no system call.
ClockGettime Real() {
  static std::atomic<ClockGettime> real{nullptr};
  ClockGettime function = real.load(std::memory_order_relaxed);
  if (function == nullptr) {
    // Every thread finds the same address, so any of them may store it.
    function = reinterpret_cast<ClockGettime>(dlsym(RTLD_NEXT, "clock_gettime"));
    real.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  const ClockGettime real = Real();
  const int result = real != nullptr ? real(clock, time)
                                     : static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_MONOTONIC && result == 0) {
    const int64_t now_ns = nccl_pulse::recorded_clock::Now(
        static_cast<int64_t>(time->tv_sec) * 1'000'000'000 + time->tv_nsec);
    time->tv_sec = now_ns / 1'000'000'000;
    time->tv_nsec = now_ns % 1'000'000'000;
  }
  return result;
}
