// Lists the bits of NCCL's event mask that enable each event. A bit enables its own events, and
// also the events on which these depend.
//
// Source: NCCL 2.30.7 and 2.31.2, src/plugin/profiler.cc, the ncclProfilerStart* functions and
// ncclProfilerEnforceMaskDeps; docs/nccl-profiler-api.md#implied-events.
//
// Thread: pure functions.
#ifndef PLUGIN_ABI_IMPLIED_EVENTS_H_
#define PLUGIN_ABI_IMPLIED_EVENTS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "plugin/abi/common.h"

namespace nccl_pulse::abi {

// Returns the mask bits of which each enables `event`, a single bit up to kEventKernelPhase.
constexpr uint32_t BitsThatBring(uint64_t event) {
  constexpr uint32_t kProxyOps = kEventProxyOp | kEventProxyStep | kEventNetPlugin;
  constexpr uint32_t kColl = kEventColl | kProxyOps | kEventKernelCh;
  constexpr uint32_t kP2p = kEventP2p | kProxyOps | kEventKernelCh;
  constexpr uint32_t kCopyEngine = kEventCeColl | kEventCeSync | kEventCeBatch;
  constexpr std::array<uint32_t, 16> kBits = {
      kEventGroup | kColl | kP2p,           // Group
      kColl,                                // Coll
      kP2p,                                 // P2p
      kProxyOps,                            // ProxyOp
      kEventProxyStep | kEventNetPlugin,    // ProxyStep
      kEventProxyCtrl,                      // ProxyCtrl
      kEventKernelCh,                       // KernelCh
      kEventNetPlugin,                      // NetPlugin
      0x7fff & ~kEventProxyCtrl,            // GroupApi
      kEventCollApi | kColl | kCopyEngine,  // CollApi
      kEventP2pApi | kP2p,                  // P2pApi
      kEventKernelLaunch,                   // KernelLaunch
      kCopyEngine,                          // CeColl
      kEventCeSync,                         // CeSync
      kEventCeBatch,                        // CeBatch
      kEventKernelPhase,                    // KernelPhase
  };
  return kBits[static_cast<std::size_t>(__builtin_ctzll(event))];
}

// Returns the mask that NCCL uses after init wrote `mask`: NCCL adds bits on which others depend.
constexpr uint32_t Enforced(uint32_t mask) {
  return (mask & kEventKernelPhase) != 0 ? mask | kEventKernelCh : mask;
}

}  // namespace nccl_pulse::abi

#endif  // PLUGIN_ABI_IMPLIED_EVENTS_H_
