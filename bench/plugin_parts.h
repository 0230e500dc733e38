// What the profiler plugins that measurements stand beside have in common (empty_plugin.cc,
// floor_plugin.cc): which events the real one asks for, and the calls that they do nothing in.
#ifndef BENCH_PLUGIN_PARTS_H_
#define BENCH_PLUGIN_PARTS_H_

#include "plugin/abi/common.h"

namespace nccl_pulse::bench {

// By default, whatever the API version.
inline constexpr int kRealMask = 0xe0e;

template <typename StateArgs>
int IgnoreState(void* /*handle*/, int /*state*/, StateArgs* /*args*/) {
  return abi::kSuccess;
}
inline int IgnoreFinalize(void* /*context*/) { return abi::kSuccess; }

}  // namespace nccl_pulse::bench

#endif  // BENCH_PLUGIN_PARTS_H_
