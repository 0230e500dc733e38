// Copies blocks of one CUDA context to the host, by a mapping of one's own.
//
// NCCL unmaps a block when its communicator ends, and a copy that is then under way from NCCL's own
// mapping would fault the context. So the allocation is mapped a second time (WorkMapping), and
// copied from there: the memory stays until that mapping is given up. A block's allocation keeps 2
// MiB of the GPU until then. The copies are made on a stream of one's own that does not wait for the
// legacy stream, and are seen by no capture.
//
// The memory that copies go to is allocated once for each context and never freed: to unregister it
// waits for kernels that hang.
//
// Thread: one, with its capture mode relaxed. Cost: 3 us for the driver's call,
// and until the copy is done, 20 us at most as a rule. Errors: a refused call, once, is the end of
// this reader: is_failed.
#ifndef PLUGIN_CUDA_WORK_READER_H_
#define PLUGIN_CUDA_WORK_READER_H_

#include <cstdint>

#include "plugin/cuda/work_driver.h"
#include "plugin/cuda/work_search.h"

namespace nccl_pulse {

// An allocation of NCCL's at an address of one's own.
class WorkMapping {
 public:
  // Takes the candidate's allocation over, also if that fails. In its context.
  bool Map(const CudaDriver& driver, const WorkDriver& work, const WorkCandidate& candidate);
  // Gives mapping and allocation back. No copy may be under way.
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

  // Comes before anything else. is_failed: the driver refuses a reader of that context.
  void Open(const CudaDriver& driver, const WorkDriver& work, CudaContext context, uint64_t id);
  bool Is(CudaContext context, uint64_t id) const { return context_ == context && id_ == id; }
  bool IsAt(CudaContext context) const { return context_ == context; }
  // Makes the context current. False when it is another one by now.
  bool Enter();
  // Begins a copy for somebody, while nobody has one under way, and waits for it a moment.
  Copy Begin(uint32_t user, CudaAddress block, uint64_t now_ns);
  // How the copy that is under way stands. Once it is not, nobody has one.
  Copy Look();
  uint32_t user() const { return user_; }  // who has a copy under way
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
