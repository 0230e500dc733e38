// The server's clock: time that passes, whatever else in the process plays with clocks. A replay
// gives CLOCK_MONOTONIC, which std::chrono::steady_clock reads, the times of the recording: they
// may lie behind what was read before, or stand still, and what waits for them would wait for ever.
//
// Thread: any. Cost: a clock's read.
#ifndef EXPORTER_NODE_MONOTONIC_CLOCK_H_
#define EXPORTER_NODE_MONOTONIC_CLOCK_H_

#include <time.h>

#include <chrono>

namespace nccl_pulse {

inline std::chrono::steady_clock::time_point MonotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return std::chrono::steady_clock::time_point(std::chrono::seconds(now.tv_sec) +
                                               std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_MONOTONIC_CLOCK_H_
