// Returns CLOCK_REALTIME in nanoseconds.
//
// Thread: any. Cost: one clock read.
#ifndef EXPORTER_BASE_REALTIME_CLOCK_H_
#define EXPORTER_BASE_REALTIME_CLOCK_H_

#include <cstdint>
#include <ctime>

namespace nccl_pulse {

inline int64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_REALTIME_CLOCK_H_
