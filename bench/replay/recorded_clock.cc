#include "bench/replay/recorded_clock.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace nccl_pulse::recorded_clock {
namespace {

constexpr int64_t kNone = INT64_MIN;

// Newest time of any callback. kNone: the clock is not replaced.
std::atomic<int64_t> newest_ns{kNone};
// Offset to the real clock after the replay. kNone: the replay has not ended.
std::atomic<int64_t> offset_ns{kNone};
// Time of this thread's current callback.
thread_local int64_t callback_ns = kNone;

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

void Start(int64_t first_ns) {
  // Relaxed everywhere: the values are independent. For threads that make callbacks, the replay's
  // hand-over between threads orders them.
  newest_ns.store(first_ns, std::memory_order_relaxed);
}

void Enter(int64_t t_ns) {
  callback_ns = t_ns;
  // One thread at a time makes callbacks, so load and store need not be atomic together.
  if (t_ns > newest_ns.load(std::memory_order_relaxed)) {
    newest_ns.store(t_ns, std::memory_order_relaxed);
  }
}

void Leave() { callback_ns = kNone; }

void RunOn() {
  offset_ns.store(newest_ns.load(std::memory_order_relaxed) - RealNow(), std::memory_order_relaxed);
}

int64_t Now(int64_t real_ns) {
  if (callback_ns != kNone) return callback_ns;
  const int64_t offset = offset_ns.load(std::memory_order_relaxed);
  if (offset != kNone) return real_ns + offset;
  const int64_t newest = newest_ns.load(std::memory_order_relaxed);
  return newest == kNone ? real_ns : newest;
}

int64_t RealNow() {
  // A system call, because clock_gettime may be the replaced one.
  timespec now = {};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace nccl_pulse::recorded_clock

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  const auto real = nccl_pulse::recorded_clock::Real();
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
