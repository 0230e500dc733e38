// Converts nanoseconds to seconds, with the precision that each use needs.
//
// Thread: any, no state.
#ifndef EXPORTER_BASE_SECONDS_H_
#define EXPORTER_BASE_SECONDS_H_

#include <cstdint>

namespace nccl_pulse {

// Returns the nearest double. For metrics and durations.
inline double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
inline double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Truncates to microseconds. For Unix times in JSON: a double cannot hold their nanoseconds, and
// would show noise.
inline double SecondsToMicrosecond(int64_t ns) { return static_cast<double>(ns / 1000) / 1e6; }

// Truncates to milliseconds. For summaries, which must be short.
inline double SecondsToMillisecond(int64_t ns) { return static_cast<double>(ns / 1000000) / 1e3; }

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_SECONDS_H_
