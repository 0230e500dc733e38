// Nanoseconds as seconds, rounded as the reader of the number needs it.
//
// Thread: any, no state.
#ifndef EXPORTER_BASE_SECONDS_H_
#define EXPORTER_BASE_SECONDS_H_

#include <cstdint>

namespace nccl_pulse {

// Returns the nearest double: for metrics and durations.
inline double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
inline double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Returns whole microseconds: for Unix times in JSON. A double cannot hold their nanoseconds, and
// would show noise.
inline double SecondsToMicrosecond(int64_t ns) { return static_cast<double>(ns / 1000) / 1e6; }

// Returns whole milliseconds: for summaries, which must be short.
inline double SecondsToMillisecond(int64_t ns) { return static_cast<double>(ns / 1000000) / 1e3; }

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_SECONDS_H_
