// RoundPauseNs schedules the background thread's rounds.
//
// Rounds begin at multiples of the pause in Unix time. So all ranks of a host poll at the same
// time, and ranks of hosts with synchronized clocks nearly so. They then see the same replay of a
// CUDA graph: a stamp (plugin/cuda/graph_stamps.h) keeps only the time of the last replay. Only
// times of the same replay can be compared (exporter/diagnosis/stragglers/straggler.h).
#ifndef PLUGIN_RUNTIME_ROUND_PAUSE_H_
#define PLUGIN_RUNTIME_ROUND_PAUSE_H_

#include <cstdint>

namespace nccl_pulse {

// Returns the nanoseconds from `realtime_ns` to the next round: 1/4 to 5/4 of `pause_ms`, even
// after a step of the clock.
constexpr int64_t RoundPauseNs(int64_t realtime_ns, int pause_ms) {
  const int64_t period_ns = pause_ms * int64_t{1000000};
  const int64_t rest_ns = period_ns - realtime_ns % period_ns;
  return rest_ns < period_ns / 4 ? rest_ns + period_ns : rest_ns;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_ROUND_PAUSE_H_
