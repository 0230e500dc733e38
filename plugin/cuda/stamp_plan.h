// Decides which launches of a capture get a stamp. Only the launch's position within its own
// capture counts. So the same work captured again has the same nodes; without that, an application
// that updates an executable (cudaGraphExecUpdate) would fail.
//
//   launch   0 ...  20 ...  60 ...  120 ...  180 ...
//   stamps |k        k      |k|     |k|      |k|          k: the launch's kernel, |: a stamp
//
// The first stamp is added at the 21st launch, at the head of the graph, before all captured work.
// This stamp distinguishes ranks that have not begun a replay from ranks that wait in its first
// collective. If a graph has too many heads (StampContext::kMostRoots), the stamp is in front of
// the 21st launch. Pairs also measure the duration of one launch.
//
// The budget is the larger of 0.25 us and 1 % per launch. A stamp costs 1.0 to 1.5 us
// (docs/cuda-graphs.md). No graph has more than 3 stamps per 61 launches; a graph of up to 20
// launches has none.
#ifndef PLUGIN_CUDA_STAMP_PLAN_H_
#define PLUGIN_CUDA_STAMP_PLAN_H_

#include <cstdint>

namespace nccl_pulse {

inline constexpr uint32_t kFirstStamp = 20;
inline constexpr uint32_t kPairSpacing = 60;
inline constexpr uint32_t kMostPairs = 12;  // in one capture; later launches have no stamps
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
