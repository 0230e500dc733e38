// The state of one communicator's CUDA graphs (graph_follower.h): captured calls without a launch,
// and the findings of the last poll of the stamps.
//
// Thread: see each structure. Cost: plain loads and stores.
#ifndef PLUGIN_TRACKER_CAPTURED_LAUNCH_H_
#define PLUGIN_TRACKER_CAPTURED_LAUNCH_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/graph_position.h"
#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

// Captured calls whose launch has not been captured yet. Used if graphs are followed. One writer at
// a time, as in LaunchFollower.
struct CapturedLaunch {
  Relaxed<uint32_t> owner;  // generation of the communicator's record to which the fields belong
  Relaxed<uint32_t> calls;
  Relaxed<uint32_t> kind;  // CapturedCalls, of the last call
  Relaxed<uint64_t> bytes, bus_bytes;
  Relaxed<CudaStream> stream;  // of the launch whose stop is awaited; null: none

  // Starts anew if the fields belong to another generation.
  void Claim(uint32_t generation) {
    if (owner.load() == generation) return;
    calls.store(0);
    stream.store(nullptr);
    owner.store(generation);
  }
};

// Replays of graphs with calls of a communicator, as found by one poll of the stamps. Background
// thread.
struct GraphReplays {
  uint32_t record_generation;  // as CapturedLaunch::owner
  uint64_t look;               // number of the poll; 0: no poll found a replay
  uint64_t in_flight;          // replays
  uint64_t moved_ns;           // when a stamp was last passed
  GraphPosition position;
  uint64_t position_gpu_ns;  // when the GPU reached `position`, by the GPU's clock
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_CAPTURED_LAUNCH_H_
