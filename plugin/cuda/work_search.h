// FindWorkCandidates finds candidates for the block of device memory in which NCCL has its work
// counter (work_proof.h), starting at the address where NCCL keeps the profiler's context.
//
// NCCL passes a profiler's init the address of ncclComm::profilerContext. Another member, 6 to 9
// KiB before it (2.26.2 to 2.31.2), holds the block's address. The distance differs between
// releases, so the search checks all aligned words in the 16 KiB before. It reads through
// /proc/self/mem: an unmapped address is then an error instead of a fault, and seccomp filters that
// kill a process for process_vm_readv allow it.
//
// Thread: a callback of this communicator, during which NCCL keeps the block. The search retains
// the allocations, so they survive NCCL's free; the caller must release them
// (WorkDriver::release_allocation). Cost: ten system calls and about ten driver calls, once per
// communicator.
#ifndef PLUGIN_CUDA_WORK_SEARCH_H_
#define PLUGIN_CUDA_WORK_SEARCH_H_

#include <cstdint>

#include "plugin/cuda/work_driver.h"

namespace nccl_pulse {

inline constexpr uint32_t kWorkCandidates = 8;

struct WorkCandidate {
  CudaAllocation allocation;
  size_t bytes;     // size of the allocation
  uint64_t offset;  // offset of the block in the allocation
  CudaAddress at;   // the block's address in NCCL's mapping; not used for reading
};

struct WorkCandidates {
  CudaContext context;
  uint64_t context_id;  // CudaDriver::context_get_id
  uint32_t count;
  bool is_other_memory;  // some candidates were in memory that cannot be mapped a second time
  WorkCandidate candidate[kWorkCandidates];
};

// `context_at`: the address that NCCL passed to init for the context.
void FindWorkCandidates(const CudaDriver& driver, const WorkDriver& work, const void* context_at,
                        WorkCandidates* found);

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_WORK_SEARCH_H_
