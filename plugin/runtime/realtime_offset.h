// RealtimeOffsetNs returns CLOCK_REALTIME minus CLOCK_MONOTONIC. The plugin measures with the
// monotonic clock; people and Prometheus read real time.
//
// If the thread lost its CPU between reading the two clocks, the offset would be wrong by that
// time, and so would all times that the endpoint shows for this process. So real time is read
// between two reads of the monotonic clock. Of up to eight tries, the one with the shortest time
// between these two reads is used.
//
// Thread: any. Cost: three clock reads, up to 24 on a busy machine.
#ifndef PLUGIN_RUNTIME_REALTIME_OFFSET_H_
#define PLUGIN_RUNTIME_REALTIME_OFFSET_H_

#include <cstdint>

namespace nccl_pulse {

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

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_REALTIME_OFFSET_H_
