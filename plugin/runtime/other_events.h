// own_events: the events that this plugin requests. other_events: the events that a second profiler
// behind this plugin requests (plugin/next); 0 if it requests network steps (chain.cc). NCCL's mask
// has both. Indexed by API version, because each NCCL has its own mask.
//
// Thread: any. Relaxed: written before the communicator's init continues; they order nothing.
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
