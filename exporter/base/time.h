// Reads clocks, waits, and converts nanoseconds to seconds with the precision that each use needs.
//
// Thread: any, no state. Cost of a clock: one read.
#ifndef EXPORTER_BASE_TIME_H_
#define EXPORTER_BASE_TIME_H_

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace nccl_pulse {

// Returns the server's time, from CLOCK_MONOTONIC_RAW, which always advances. A replay makes
// CLOCK_MONOTONIC, and so std::chrono::steady_clock, show the recording's times. These may step
// back or stop, and would block a waiting thread forever.
inline std::chrono::steady_clock::time_point MonotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return std::chrono::steady_clock::time_point(std::chrono::seconds(now.tv_sec) +
                                               std::chrono::nanoseconds(now.tv_nsec));
}

// Returns CLOCK_REALTIME in nanoseconds.
inline int64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// Blocks, on threads that have nothing else to do.
inline void Pause(std::chrono::milliseconds time) {
  poll(nullptr, 0, static_cast<int>(time.count()));
}

// Waits until `fd` is readable, or until `until`.
inline void WaitFor(int fd, std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - MonotonicNow());
  pollfd polled = {fd, POLLIN, 0};
  poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
}

// Returns the nearest double. For metrics and durations.
inline double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
inline double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Truncates to microseconds. For Unix times in JSON: a double cannot hold their nanoseconds, and
// would show noise.
inline double SecondsToMicrosecond(int64_t ns) { return static_cast<double>(ns / 1000) / 1e6; }

// Truncates to milliseconds. For summaries, which must be short.
inline double SecondsToMillisecond(int64_t ns) { return static_cast<double>(ns / 1000000) / 1e3; }

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_TIME_H_
