// Chooses the events to request from each version of NCCL's profiler API, and lists what the
// version can report. A process may have several NCCLs of different versions (one linked in, one
// loaded).
//
// Thread: pure functions.
#ifndef PLUGIN_RUNTIME_API_VERSION_H_
#define PLUGIN_RUNTIME_API_VERSION_H_

#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

inline constexpr int kFirstVersionWithTimestamps = 4;    // of the GPU, in KernelCh
inline constexpr int kFirstVersionWithNetworkSteps = 5;  // those of graphs can be told from others
inline constexpr int kFirstVersionWithUserTags = 7;

// The events that NCCL is asked for. Fixed for the life of each NCCL, but for the ProxyStep bit
// (network_window.h): the KernelCh bit must never change while the job runs (a CUDA graph would
// hang). Events that the version does not know are left out, and timestamps that it does not have.
inline uint32_t EventMask(int api_version, TimingMode timing) {
  uint32_t mask = abi::kEventColl | abi::kEventP2p | abi::kEventGroupApi | abi::kEventCollApi |
                  abi::kEventP2pApi | abi::kEventKernelLaunch | abi::kEventCeColl;
  if (timing != TimingMode::kOff) mask |= abi::kEventProxyOp;
  if (timing == TimingMode::kKernel && api_version >= kFirstVersionWithTimestamps) {
    mask |= abi::kEventKernelCh;
  }
  return mask & abi::EventsOfVersion(api_version);
}

// What times operations. `follows_streams`: there is a driver, and a thread that looks.
inline const char* DurationSource(int api_version, TimingMode timing, bool follows_streams) {
  if (timing == TimingMode::kKernel) {
    return api_version >= kFirstVersionWithTimestamps ? "kernel" : "none";
  }
  const bool stream =
      timing == TimingMode::kAuto && api_version >= kFirstVersionWithLaunches && follows_streams;
  return stream ? "stream" : "none";
}

// What tells that work has ended. On the stream: every launch that NCCL reports. ProxyOps:
// operations that touch the network; they tell the end of an operation, beside the stream, wherever
// they come.
inline const char* CompletionSourceName(int api_version, TimingMode timing, bool follows_streams) {
  if (timing == TimingMode::kOff) return "none";
  if (api_version >= kFirstVersionWithLaunches && follows_streams) return "stream";
  const bool kernel = timing == TimingMode::kKernel && api_version >= kFirstVersionWithTimestamps;
  return kernel ? "kernel" : "proxy";
}

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_API_VERSION_H_
