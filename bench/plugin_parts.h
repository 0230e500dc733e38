// Common parts of the plugins used for comparison (empty_plugin.cc, floor_plugin.cc): an event mask
// like the real plugin's, and calls that do nothing.
#ifndef BENCH_PLUGIN_PARTS_H_
#define BENCH_PLUGIN_PARTS_H_

#include "plugin/abi/common.h"

namespace nccl_pulse::bench {

// NCCL Pulse's default events. Bits that an API version lacks have no effect. GroupApi is omitted:
// NCCL makes its events anyway.
inline constexpr int kRealMask = 0x1e0e;

template <typename StateArgs>
int IgnoreState(void* /*handle*/, int /*state*/, StateArgs* /*args*/) {
  return abi::kSuccess;
}
inline int IgnoreFinalize(void* /*context*/) { return abi::kSuccess; }

}  // namespace nccl_pulse::bench

#endif  // BENCH_PLUGIN_PARTS_H_
