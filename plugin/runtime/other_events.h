// The events that a profiler behind ours asks of NCCL (plugin/next), which are in NCCL's mask
// beside our own, and those that we ask for. By API version, since each NCCL has a mask.
//
// Thread: any. Relaxed: written before the communicator's init goes on, and orders nothing.
#ifndef PLUGIN_RUNTIME_OTHER_EVENTS_H_
#define PLUGIN_RUNTIME_OTHER_EVENTS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/abi/common.h"

namespace nccl_pulse {

[[gnu::visibility("hidden")]] inline abi::ByVersion<Relaxed<uint32_t>> other_events{};
[[gnu::visibility("hidden")]] inline abi::ByVersion<Relaxed<uint32_t>> own_events{};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_OTHER_EVENTS_H_
