// StampContext holds the stamps' code (graph_stamps.h) in one CUDA context, and slots in host
// memory to which the GPU writes when it passes a stamp.
//
// Prepare creates both during init of the context's first communicator. Its driver calls may wait
// for the context's work and for the translation of the code. NCCL's init allocates memory and
// loads kernels at that time anyway, so this is no new kind of wait; on a background thread it
// would delay the job's first collectives. The result is final before the first capture can begin.
//
// The slots are this process' own memory, registered with the driver, so they stay readable after
// the context is destroyed. They are shared memory: after a fork, the GPU and this process still
// use the same pages. Nothing is freed: 64 KiB of host memory and 32 KiB of GPU memory per context.
//
// Thread: Prepare by one thread at a time (the runtime's lock), before others see the context;
// other functions by any thread, also in callbacks. Cost of Prepare: the driver's translation of a
// kernel of ten instructions, once. Cost of TakeSlot: a compare-and-swap. Cost of Launch and
// AddAtHead: adding a node to a capture.
#ifndef PLUGIN_CUDA_STAMP_CONTEXT_H_
#define PLUGIN_CUDA_STAMP_CONTEXT_H_

#include <atomic>
#include <cstdint>

#include "plugin/cuda/stamp_code.h"
#include "plugin/cuda/stamp_driver.h"

namespace nccl_pulse {

// Written by a stamp when the GPU passes it: 16 bytes in one store.
struct alignas(16) StampSlot {
  std::atomic<uint64_t> passages;
  std::atomic<uint64_t> gpu_ns;  // %globaltimer
};
static_assert(sizeof(StampSlot) == 16);

class StampContext {
 public:
  // Slot of all stamps that are not read. They are added if no record or slot is free, so that a
  // graph's nodes do not depend on these.
  static constexpr uint32_t kUnreadSlot = 0;

  // Call with `context` current on the calling thread. Returns false if the driver refuses; not
  // retried.
  bool Prepare(const StampDriver& driver, CudaContext context, uint64_t id);
  bool Is(CudaContext context, uint64_t id) const { return context_ == context && id_ == id; }
  bool is_ready() const { return slots_ != nullptr; }

  // Takes a free slot; return it with GiveBack. Returns kUnreadSlot if there is none.
  uint32_t TakeSlot();
  void GiveBack(uint32_t slot);
  // Adds a stamp to the capture on `stream`. Call with this context current. Returns the driver's
  // error.
  int Launch(const StampDriver& driver, CudaStream stream, uint32_t slot) const;
  // Adds a stamp as the new root of `graph`, before all nodes captured so far. Returns kNotAdded if
  // the graph has no root, or more than kMostRoots; kRefused with the driver's error in `error`.
  enum class Head { kAdded, kNotAdded, kRefused };
  // NCCL adds a root of its own for each communicator.
  static constexpr size_t kMostRoots = 16;
  Head AddAtHead(const StampDriver& driver, CudaGraph graph, uint32_t slot, int* error) const;

  struct Passages {
    uint64_t count = 0;   // how often the GPU has passed the slot's stamps
    uint64_t gpu_ns = 0;  // when it last did, by the GPU's clock
  };
  Passages Read(uint32_t slot) const;

 private:
  static constexpr uint32_t kWords = kStampSlots / 64;

  CudaContext context_ = nullptr;
  uint64_t id_ = 0;
  CudaFunction function_ = nullptr;
  StampSlot* slots_ = nullptr;  // null: not ready
  uint64_t gpu_slots_ = 0;      // address of slots_ on the GPU
  std::atomic<uint64_t> taken_[kWords]{};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STAMP_CONTEXT_H_
