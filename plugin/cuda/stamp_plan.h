// Decides at which launches of a CUDA graph capture stamps (graph_stamps.h) are added. This depends
// only on the launch's position within its capture. So the same work captured again has the same
// nodes; otherwise, an application that updates an executable (cudaGraphExecUpdate) would fail.
//
//   launch   0 ...  20 ...  60 ...  120 ...  180 ...
//   stamps |k        k      |k|     |k|      |k|          k: the launch's kernel, |: a stamp
//
// The first stamp is added at the 21st launch, as the root of the graph, before all captured work.
// This stamp distinguishes ranks that have not begun a replay from ranks that wait in its first
// collective. If a graph has too many roots (StampContext::kMostRoots), the stamp is in front of
// the 21st launch. All other stamps come in pairs, which also measure the duration of one launch.
//
// Stamps may slow a replay by the larger of 0.25 us and 1 % per launch. A stamp costs 1.0 to 1.5 us
// (docs/cuda-graphs.md). So no graph has more than 3 stamps per 61 launches, and a graph of up to
// 20 launches has none.
#ifndef PLUGIN_CUDA_STAMP_PLAN_H_
#define PLUGIN_CUDA_STAMP_PLAN_H_

#include <cstdint>

namespace nccl_pulse {

inline constexpr uint32_t kFirstStamp = 20;   // launches before the first stamp is added
inline constexpr uint32_t kPairSpacing = 60;  // launches from pair to pair
inline constexpr uint32_t kMostPairs = 12;    // in one capture; later launches have no stamps
inline constexpr uint32_t kMostStamps = 1 + 2 * kMostPairs;

enum class StampsDue { kNone, kHead, kPair };

// Returns the stamps due at a launch with `launches_before` earlier launches in its capture.
constexpr StampsDue StampsDueAt(uint32_t launches_before) {
  if (launches_before == kFirstStamp) return StampsDue::kHead;
  const bool pair = launches_before != 0 && launches_before % kPairSpacing == 0 &&
                    launches_before / kPairSpacing <= kMostPairs;
  return pair ? StampsDue::kPair : StampsDue::kNone;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STAMP_PLAN_H_
