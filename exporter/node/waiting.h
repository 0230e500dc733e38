// Blocks for a time or until a descriptor is readable, on threads that have nothing else to do.
//
// Thread: any.
#ifndef EXPORTER_NODE_WAITING_H_
#define EXPORTER_NODE_WAITING_H_

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "exporter/base/time.h"

namespace nccl_pulse {

inline void Pause(std::chrono::milliseconds time) {
  poll(nullptr, 0, static_cast<int>(time.count()));
}

// Waits until `fd` is readable, or until `until`.
inline void WaitFor(int fd, std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - MonotonicNow());
  pollfd polled = {fd, POLLIN, 0};
  poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
}

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_WAITING_H_
