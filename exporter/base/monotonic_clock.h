// Returns the server's time, from CLOCK_MONOTONIC_RAW, which always advances. A replay makes
// CLOCK_MONOTONIC, and so std::chrono::steady_clock, show the recording's times. These may step
// back or stop, and would block a waiting thread forever.
//
// Thread: any. Cost: one clock read.
#ifndef EXPORTER_BASE_MONOTONIC_CLOCK_H_
#define EXPORTER_BASE_MONOTONIC_CLOCK_H_

#include <chrono>
#include <ctime>

namespace nccl_pulse {

inline std::chrono::steady_clock::time_point MonotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return std::chrono::steady_clock::time_point(std::chrono::seconds(now.tv_sec) +
                                               std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_MONOTONIC_CLOCK_H_
