// WorkReader copies NCCL's blocks of device memory that contain its work counters (work_proof.h)
// to the host. There is one reader per CUDA context.
//
// NCCL unmaps a block when its communicator ends; a copy in progress from NCCL's mapping would then
// fault the context. So the reader maps the allocation a second time (WorkMapping) and copies from
// there. The memory, 2 MiB of the GPU per block, lives until Unmap. Copies are made on the reader's
// own stream, which does not wait for the legacy stream and is in no capture.
//
// The host memory for copies is allocated once per context and never freed, because unregistering
// it would wait for hanging kernels.
//
// Thread: one, in relaxed capture mode. Cost: 3 us for the driver's call; a copy normally takes at
// most 20 us. Errors: the first refused call disables the reader (is_failed).
#ifndef PLUGIN_CUDA_WORK_READER_H_
#define PLUGIN_CUDA_WORK_READER_H_

#include <cstdint>

#include "plugin/cuda/work_driver.h"
#include "plugin/cuda/work_search.h"

namespace nccl_pulse {

// A second mapping of one of NCCL's allocations.
class WorkMapping {
 public:
  // Maps the candidate's allocation and takes ownership of it, even on failure. Call in its
  // context.
  bool Map(const CudaDriver& driver, const WorkDriver& work, const WorkCandidate& candidate);
  // Releases mapping and allocation. No copy may be in progress.
  void Unmap(const WorkDriver& work);
  CudaAddress block() const { return address_ + offset_; }

 private:
  CudaAllocation allocation_ = kCudaNoAllocation;
  CudaAddress address_ = 0;  // 0: none
  size_t bytes_ = 0;
  uint64_t offset_ = 0;
  bool is_mapped_ = false;
};

class WorkReader {
 public:
  enum class Copy { kDone, kWaiting, kFailed };
  static constexpr uint32_t kNobody = UINT32_MAX;

  // Call first. If the driver refuses, is_failed is true afterwards.
  void Open(const CudaDriver& driver, const WorkDriver& work, CudaContext context, uint64_t id);
  bool Is(CudaContext context, uint64_t id) const { return context_ == context && id_ == id; }
  bool IsAt(CudaContext context) const { return context_ == context; }
  // Makes the context current. Returns false if it was destroyed or replaced.
  bool Enter();
  // Begins a copy of `block` and waits for it briefly. `user`: any number, which user() returns. No
  // other copy may be in progress.
  Copy Begin(uint32_t user, CudaAddress block, uint64_t now_ns);
  // Returns the state of the copy in progress. Unless it is kWaiting, the reader is free again.
  Copy Look();
  uint32_t user() const { return user_; }  // of the copy in progress; kNobody: none
  uint64_t begun_ns() const { return begun_ns_; }
  const char* block() const { return static_cast<const char*>(memory_); }
  bool is_failed() const { return is_failed_; }

 private:
  Copy Fail();

  const CudaDriver* driver_ = nullptr;
  const WorkDriver* work_ = nullptr;
  CudaContext context_ = nullptr;
  uint64_t id_ = 0;
  CudaStream stream_ = nullptr;
  void* memory_ = nullptr;
  uint32_t user_ = kNobody;
  uint64_t begun_ns_ = 0;
  bool is_failed_ = false;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_WORK_READER_H_
