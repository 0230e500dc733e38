// StampContext holds the stamps' code in one CUDA context, and places in host memory that the GPU
// writes.
//
// Prepare creates all of it, in init of the context's first communicator. NCCL allocates memory and
// loads kernels in that context at the same time, so these calls (which may wait for work of the
// context and for the driver's translation) add no new kind of wait. A background thread would make
// them beside the job's first collectives. Success is known before the first capture can begin, and
// is final.
//
// The memory is the process' own, only registered with the driver: readers still have it when the
// context is gone. It is shared memory, so that after a fork the GPU and this process still have
// the same pages. It is never freed: 64 KiB of host memory and 32 KiB of GPU memory per context.
//
// Thread: Prepare by one thread at a time (the runtime's lock), before others see the context;
// TakePlace, Launch and AddAtHead from callbacks, any thread; the rest by the background thread.
// Cost: Prepare what the driver needs to translate a kernel of ten instructions, once; TakePlace a
// compare-and-swap; Launch and AddAtHead what adding a node to a capture costs.
#ifndef PLUGIN_CUDA_STAMP_CONTEXT_H_
#define PLUGIN_CUDA_STAMP_CONTEXT_H_

#include <atomic>
#include <cstdint>

#include "plugin/cuda/stamp_code.h"
#include "plugin/cuda/stamp_driver.h"

namespace nccl_pulse {

// What a stamp wrote when it was last passed: 16 bytes in one store.
struct alignas(16) StampPlace {
  std::atomic<uint64_t> passages;
  std::atomic<uint64_t> gpu_ns;  // %globaltimer
};
static_assert(sizeof(StampPlace) == 16);

class StampContext {
 public:
  // A stamp without a reader. It keeps a graph's nodes the same if no place is left.
  static constexpr uint32_t kUnreadPlace = 0;

  // In the calling thread's current context, which this is. False when the driver refuses; it is
  // not tried again.
  bool Prepare(const StampDriver& driver, CudaContext context, uint64_t id);
  bool Is(CudaContext context, uint64_t id) const { return context_ == context && id_ == id; }
  bool is_ready() const { return places_ != nullptr; }

  // Takes a free place, to be given back. Returns kUnreadPlace if there is none.
  uint32_t TakePlace();
  void GiveBack(uint32_t place);
  // Adds a stamp to what `stream` captures; the calling thread's current context is this one.
  // Returns the driver's error.
  int Launch(const StampDriver& driver, CudaStream stream, uint32_t place) const;
  // Adds one in front of all that `graph`, which is being captured, has so far: its new root.
  // kNotAdded: the graph begins with more than kMostRoots nodes side by side, or with none.
  enum class Head { kAdded, kNotAdded, kRefused };
  // NCCL itself puts nodes of its own at the head of a graph, for each communicator.
  static constexpr size_t kMostRoots = 16;
  Head AddAtHead(const StampDriver& driver, CudaGraph graph, uint32_t place, int* error) const;

  struct Passages {
    uint64_t count = 0;
    uint64_t gpu_ns = 0;
  };
  Passages Read(uint32_t place) const;

 private:
  static constexpr uint32_t kWords = kStampPlaces / 64;

  CudaContext context_ = nullptr;
  uint64_t id_ = 0;
  CudaFunction function_ = nullptr;
  StampPlace* places_ = nullptr;  // null: not ready
  uint64_t gpu_places_ = 0;       // their address on the GPU
  std::atomic<uint64_t> taken_[kWords]{};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STAMP_CONTEXT_H_
