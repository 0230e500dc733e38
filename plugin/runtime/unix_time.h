// Relates the monotonic clock and the background thread's rounds to Unix time.
#ifndef PLUGIN_RUNTIME_UNIX_TIME_H_
#define PLUGIN_RUNTIME_UNIX_TIME_H_

#include <cstdint>

namespace nccl_pulse {

// RealtimeOffsetNs returns CLOCK_REALTIME minus CLOCK_MONOTONIC. The plugin measures with the
// monotonic clock; people and Prometheus read real time.
//
// If the thread lost its CPU between reading the two clocks, the offset would be wrong by that
// time, and so would all times that the endpoint shows for this process. So real time is read
// between two reads of the monotonic clock. Of up to eight tries, the one with the shortest time
// between these two reads is used.
//
// Thread: any. Cost: three clock reads, up to 24 on a busy machine.
//
// `monotonic_ns()` and `realtime_ns()` read the clocks.
template <typename Monotonic, typename Realtime>
int64_t RealtimeOffsetNs(Monotonic monotonic_ns, Realtime realtime_ns) {
  constexpr int64_t kCloseNs = 20000;
  constexpr int kTries = 8;
  int64_t offset_ns = 0;
  int64_t width_ns = INT64_MAX;
  for (int i = 0; i < kTries && width_ns > kCloseNs; ++i) {
    const auto before_ns = static_cast<int64_t>(monotonic_ns());
    const int64_t real_ns = realtime_ns();
    const int64_t away_ns = static_cast<int64_t>(monotonic_ns()) - before_ns;
    if (away_ns < width_ns) {
      width_ns = away_ns;
      offset_ns = real_ns - (before_ns + away_ns / 2);
    }
  }
  return offset_ns;
}

// RoundPauseNs schedules the background thread's rounds.
//
// Rounds begin at multiples of the pause in Unix time. So all ranks of a host poll at the same
// time, and ranks of hosts with synchronized clocks nearly so. They then see the same replay of a
// CUDA graph: a stamp (plugin/cuda/graph_stamps.h) keeps only the time of the last replay. Only
// times of the same replay can be compared (exporter/diagnosis/stragglers/straggler.h).
//
// Returns the nanoseconds from `realtime_ns` to the next round: 1/4 to 5/4 of `pause_ms`, even
// after a step of the clock.
constexpr int64_t RoundPauseNs(int64_t realtime_ns, int pause_ms) {
  const int64_t period_ns = pause_ms * int64_t{1000000};
  const int64_t rest_ns = period_ns - realtime_ns % period_ns;
  return rest_ns < period_ns / 4 ? rest_ns + period_ns : rest_ns;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_UNIX_TIME_H_
