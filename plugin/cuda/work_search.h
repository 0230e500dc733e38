// Looks for NCCL's block of channels (work_proof.h) from where NCCL has the profiler's context.
//
// init of a profiler is given the address of a member of NCCL's communicator (ncclComm::
// profilerContext). Another member, 6 to 9 KiB in front of it (2.26.2 to 2.31.2), holds the block's
// address. The distance differs between releases, so all aligned words of the 16 KiB in front are
// looked at. The memory is read through /proc/self/mem: an address that is not mapped is an error and
// no fault, and no filter of system calls ends a process for reading a file, as some do for
// process_vm_readv.
//
// Thread: in a callback of the communicator whose context it is: NCCL keeps the block meanwhile. The
// allocations found are retained, so they stay when NCCL frees them; whoever takes the candidates
// gives them back (WorkDriver::release_allocation). Cost: ten system calls and about ten calls of
// the driver, once in the communicator's life.
#ifndef PLUGIN_CUDA_WORK_SEARCH_H_
#define PLUGIN_CUDA_WORK_SEARCH_H_

#include <cstdint>

#include "plugin/cuda/work_driver.h"

namespace nccl_pulse {

inline constexpr uint32_t kWorkCandidates = 8;

struct WorkCandidate {
  CudaAllocation allocation;
  size_t bytes;     // of the allocation
  uint64_t offset;  // of the block in it
  CudaAddress at;   // where NCCL has the block: never read from there
};

struct WorkCandidates {
  CudaContext context;
  uint64_t context_id;  // CudaDriver::context_get_id
  uint32_t count;
  bool is_other_memory;  // some were no allocations that can be mapped again
  WorkCandidate candidate[kWorkCandidates];
};

void FindWorkCandidates(const CudaDriver& driver, const WorkDriver& work, const void* context_at,
                        WorkCandidates* found);

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_WORK_SEARCH_H_
