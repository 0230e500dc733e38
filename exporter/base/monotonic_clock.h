// The server's clock. It reads CLOCK_MONOTONIC_RAW, which always passes. A replay makes
// CLOCK_MONOTONIC, which std::chrono::steady_clock reads, show the times of the recording: they may
// step back or stand still, and whoever waited for them would wait for ever.
//
// Thread: any. Cost: a clock's read.
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
