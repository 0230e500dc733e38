// The state of one communicator's CUDA graphs (graph_follower.h): captured calls without a launch,
// and the results of the last poll of the stamps. A stamp is a tiny kernel in a graph that counts
// how often the GPU passes it (plugin/cuda/graph_stamps.h).
//
// Thread: see each structure. Cost: plain loads and stores.
#ifndef PLUGIN_TRACKER_CAPTURED_LAUNCH_H_
#define PLUGIN_TRACKER_CAPTURED_LAUNCH_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/graph_position.h"
#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

// Captured calls whose launch has not been captured yet. Unused if no stamps are added to graphs.
// One writer at a time: NCCL serializes the calls and launches of a communicator.
struct CapturedLaunch {
  Relaxed<uint32_t> owner;  // generation of the communicator's record to which the fields belong
  Relaxed<uint32_t> calls;  // number of these calls
  Relaxed<uint32_t> kind;   // of the last call, packed by CapturedCalls::PackKind
  Relaxed<uint64_t> bytes, bus_bytes;  // of the last call
  Relaxed<CudaStream> stream;          // of the launch whose stop is awaited; null: none

  // Starts anew if the fields belong to another generation.
  void Claim(uint32_t generation) {
    if (owner.load() == generation) return;
    calls.store(0);
    stream.store(nullptr);
    owner.store(generation);
  }
};

// Replays of graphs with calls of a communicator, as of the last poll of the stamps. Background
// thread.
struct GraphReplays {
  uint32_t record_generation;  // as CapturedLaunch::owner
  uint64_t look;               // number of the last poll that found a graph; 0: none
  uint64_t in_flight;          // number of replays in flight
  uint64_t moved_ns;           // last poll that saw a newly passed stamp; 0: never
  GraphPosition position;
  uint64_t position_gpu_ns;  // when the GPU reached `position`, by the GPU's clock
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_CAPTURED_LAUNCH_H_
