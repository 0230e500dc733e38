// Which launches of a capture get a stamp. It follows from the launch's position within its own
// capture and from nothing else, so that the same work captured again has the same nodes: an
// application that updates an executable with it (cudaGraphExecUpdate) would fail otherwise.
//
// The budget is a share of the launches: a stamp costs what a kernel of one thread costs in a
// chain, and the cheapest collective in a graph takes about 6 us. One launch in kStampSpacing has
// one, and none comes before the first kStampSpacing launches have been captured, so the share
// holds for graphs of every length. A graph with fewer launches has no stamp, and its replays are
// not known.
#ifndef PLUGIN_CUDA_STAMP_PLAN_H_
#define PLUGIN_CUDA_STAMP_PLAN_H_

#include <cstdint>

namespace nccl_pulse {

inline constexpr uint32_t kStampSpacing = 16;
// Of one capture; behind them come no further ones.
inline constexpr uint32_t kMostStamps = 24;

// Whether there is a stamp in front of the launch that has so many before it in its capture.
constexpr bool IsStampDue(uint32_t launches_before) {
  return launches_before != 0 && launches_before % kStampSpacing == 0 &&
         launches_before / kStampSpacing <= kMostStamps;
}
static_assert(!IsStampDue(0) && !IsStampDue(kStampSpacing - 1) && IsStampDue(kStampSpacing));

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STAMP_PLAN_H_
