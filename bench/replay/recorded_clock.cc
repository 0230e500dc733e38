#include "bench/replay/recorded_clock.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
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
