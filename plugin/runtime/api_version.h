// Chooses the events to request from each version of NCCL's profiler API, and names the sources of
// its durations and completions. A process may have several NCCLs of different versions (one linked
// in, one loaded).
//
// Thread: pure functions.
#ifndef PLUGIN_RUNTIME_API_VERSION_H_
#define PLUGIN_RUNTIME_API_VERSION_H_

#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

inline constexpr int kFirstVersionWithTimestamps = 4;  // GPU timestamps in KernelCh
// Network steps need events that say whether a call is captured (network_steps.h).
inline constexpr int kFirstVersionWithNetworkSteps = 5;
inline constexpr int kFirstVersionWithUserTags = 7;

// Returns the events to request from NCCL. Later only the ProxyStep bit may change
// (network_window.h); a change of the KernelCh bit can hang CUDA graphs. Omits events that the
// version lacks, and KernelCh if it has no GPU timestamps.
inline uint32_t EventMask(int api_version, TimingMode timing) {
  uint32_t mask = abi::kEventColl | abi::kEventP2p | abi::kEventGroupApi | abi::kEventCollApi |
                  abi::kEventP2pApi | abi::kEventKernelLaunch | abi::kEventCeColl;
  if (timing != TimingMode::kOff) mask |= abi::kEventProxyOp;
  if (timing == TimingMode::kKernel && api_version >= kFirstVersionWithTimestamps) {
    mask |= abi::kEventKernelCh;
  }
  return mask & abi::EventsOfVersion(api_version);
}

// Returns the source of durations. `follows_streams`: there is a CUDA driver, and a background
// thread that polls CUDA events.
inline const char* DurationSource(int api_version, TimingMode timing, bool follows_streams) {
  if (timing == TimingMode::kKernel) {
    return api_version >= kFirstVersionWithTimestamps ? "kernel" : "none";
  }
  const bool stream =
      timing == TimingMode::kAuto && api_version >= kFirstVersionWithLaunches && follows_streams;
  return stream ? "stream" : "none";
}

// Returns the source that detects the completion of work. "stream" covers every launch that NCCL
// reports; "proxy" only operations that use the network, by their ProxyOps.
inline const char* CompletionSourceName(int api_version, TimingMode timing, bool follows_streams) {
  if (timing == TimingMode::kOff) return "none";
  if (api_version >= kFirstVersionWithLaunches && follows_streams) return "stream";
  const bool kernel = timing == TimingMode::kKernel && api_version >= kFirstVersionWithTimestamps;
  return kernel ? "kernel" : "proxy";
}

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_API_VERSION_H_
