#include "plugin/cuda/stamp_context.h"

#include <sys/mman.h>

namespace nccl_pulse {

bool StampContext::Prepare(const StampDriver& driver, CudaContext context, uint64_t id) {
  context_ = context;
  id_ = id;
  constexpr size_t kBytes = sizeof(StampSlot) * kStampSlots;
  CudaModule module = nullptr;
  int registers = 0;
  // With lazy loading the code would reach the GPU with its first launch, during a capture. Asking
  // for an attribute brings it there now.
  if (driver.module_load_data(&module, kStampPtx) != kCudaSuccess ||
      driver.module_get_function(&function_, module, kStampFunction) != kCudaSuccess ||
      driver.function_get_attribute(&registers, kCudaFunctionRegisters, function_) !=
          kCudaSuccess) {
    return false;
  }
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return false;
  if (driver.host_register(memory, kBytes, kCudaRegisterDeviceMap) != kCudaSuccess) {
    munmap(memory, kBytes);
    return false;
  }
  // From here on the GPU may know the memory: it is never unmapped.
  if (driver.host_get_device_pointer(&gpu_slots_, memory, 0) != kCudaSuccess) return false;
  taken_[0].store(uint64_t{1} << kUnreadSlot, std::memory_order_relaxed);  // nobody reads it yet
  slots_ = static_cast<StampSlot*>(memory);  // zeroes: nothing has passed
  return true;
}

uint32_t StampContext::TakeSlot() {
  for (uint32_t word = 0; word < kWords; ++word) {
    // Relaxed: a slot carries nothing over to its next owner.
    uint64_t taken = taken_[word].load(std::memory_order_relaxed);
    while (taken != ~uint64_t{0}) {
      const auto bit = static_cast<uint32_t>(__builtin_ctzll(~taken));
      if (taken_[word].compare_exchange_weak(taken, taken | uint64_t{1} << bit,
                                             std::memory_order_relaxed)) {
        return word * 64 + bit;
      }
    }
  }
  return kUnreadSlot;
}

void StampContext::GiveBack(uint32_t slot) {
  if (slot == kUnreadSlot) return;
  taken_[slot / 64].fetch_and(~(uint64_t{1} << slot % 64), std::memory_order_relaxed);
}

int StampContext::Launch(const StampDriver& driver, CudaStream stream, uint32_t slot) const {
  uint64_t address = gpu_slots_ + sizeof(StampSlot) * slot;
  uint32_t number = slot;
  void* parameters[] = {&address, &number};  // copied into the node
  return driver.launch_kernel(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

StampContext::Head StampContext::AddAtHead(const StampDriver& driver, CudaGraph graph,
                                           uint32_t slot, int* error) const {
  // One more than allowed, to notice a graph with too many roots.
  CudaGraphNode roots[kMostRoots + 1];
  size_t count = kMostRoots + 1;
  *error = driver.graph_get_root_nodes(graph, roots, &count);
  if (*error != kCudaSuccess) return Head::kRefused;
  if (count == 0 || count > kMostRoots) return Head::kNotAdded;
  uint64_t address = gpu_slots_ + sizeof(StampSlot) * slot;
  uint32_t number = slot;
  void* parameters[] = {&address, &number};  // copied into the node
  CudaKernelNode kernel{};
  kernel.function = function_;
  kernel.grid_x = kernel.grid_y = kernel.grid_z = 1;
  kernel.block_x = kernel.block_y = kernel.block_z = 1;
  kernel.parameters = parameters;
  CudaGraphNode stamp = nullptr;
  *error = driver.graph_add_kernel_node(&stamp, graph, nullptr, 0, &kernel);
  if (*error != kCudaSuccess) return Head::kRefused;
  CudaGraphNode from[kMostRoots];
  for (CudaGraphNode& node : from) node = stamp;
  *error = driver.graph_add_dependencies(graph, from, roots, count);
  return *error == kCudaSuccess ? Head::kAdded : Head::kRefused;
}

StampContext::Passages StampContext::Read(uint32_t slot) const {
  const StampSlot& written = slots_[slot];
  Passages passages;
  // The GPU's store is atomic, but we read twice, so the count is read again. A time that does not
  // belong to it is left out: the next look is 20 ms away. Acquire: keeps the reads in this order.
  passages.count = written.passages.load(std::memory_order_acquire);
  passages.gpu_ns = written.gpu_ns.load(std::memory_order_acquire);
  const uint64_t again = written.passages.load(std::memory_order_acquire);
  if (again != passages.count) passages = {again, 0};
  return passages;
}

}  // namespace nccl_pulse
