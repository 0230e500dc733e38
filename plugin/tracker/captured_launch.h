// The state of one communicator's CUDA graphs (graph_follower.h): captured calls without a launch,
// and the findings of the last poll of the stamps.
//
// Thread: see each structure. Cost: plain loads and stores.
#ifndef PLUGIN_TRACKER_CAPTURED_LAUNCH_H_
#define PLUGIN_TRACKER_CAPTURED_LAUNCH_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/graph_place.h"
#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

// Calls that were captured and not launched yet, where graphs are followed. One writer at a time,
// as in LaunchFollower.
struct CapturedLaunch {
  Relaxed<uint32_t> owner;  // generation of the communicator's record that the rest is about
  Relaxed<uint32_t> calls;
  Relaxed<uint32_t> kind;  // CapturedCalls, of the last call
  Relaxed<uint64_t> bytes, bus_bytes;
  Relaxed<CudaStream> stream;  // of a launch whose stop is waited for, null: of none

  // From now on of this one, if it is another's.
  void Claim(uint32_t generation) {
    if (owner.load() == generation) return;
    calls.store(0);
    stream.store(nullptr);
    owner.store(generation);
  }
};

// Replays of the graphs that have calls of a communicator, as one look at the stamps found them.
// Background thread.
struct GraphReplays {
  uint32_t record_generation;  // as CapturedLaunch::owner
  uint64_t look;               // number of the look, 0: none found anything
  uint64_t in_flight;
  uint64_t moved_ns;  // when a stamp was last passed
  GraphPlace place;
  uint64_t place_gpu_ns;  // when it was come to, by the GPU's clock
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_CAPTURED_LAUNCH_H_
