// WorkDriver holds the CUDA driver's functions for reading NCCL's counter of finished work
// (work_reader.h), found as in cuda_driver.h. No counters are read if the driver lacks one of them.
//
// Thread: Load from init. NCCL's callbacks call the first three functions, the thread "pulse-work"
// the others.
#ifndef PLUGIN_CUDA_WORK_DRIVER_H_
#define PLUGIN_CUDA_WORK_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

using CudaAddress = uint64_t;     // CUdeviceptr
using CudaAllocation = uint64_t;  // CUmemGenericAllocationHandle

inline constexpr int kCudaMemoryType = 2;              // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
inline constexpr unsigned kCudaDeviceMemory = 2;       // CU_MEMORYTYPE_DEVICE
inline constexpr unsigned kCudaNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING
inline constexpr CudaAllocation kCudaNoAllocation = 0;

// CUmemAccessDesc
struct CudaAccess {
  int location_type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE: the driver refuses read-only access
};
static_assert(sizeof(CudaAccess) == 12);

struct WorkDriver {
  int (*pointer_get_attribute)(void* value, int attribute, CudaAddress address);
  int (*get_address_range)(CudaAddress* base, size_t* bytes, CudaAddress address);
  int (*retain_allocation)(CudaAllocation* allocation, void* address);

  int (*release_allocation)(CudaAllocation allocation);
  int (*reserve_addresses)(CudaAddress* address, size_t bytes, size_t alignment, CudaAddress hint,
                           uint64_t flags);
  int (*free_addresses)(CudaAddress address, size_t bytes);
  int (*map)(CudaAddress address, size_t bytes, size_t offset, CudaAllocation allocation,
             uint64_t flags);
  int (*unmap)(CudaAddress address, size_t bytes);
  int (*set_access)(CudaAddress address, size_t bytes, const CudaAccess* access, size_t count);
  int (*host_allocate)(void** memory, size_t bytes, unsigned flags);
  int (*stream_create)(CudaStream* stream, unsigned flags);
  int (*stream_query)(CudaStream stream);
  int (*copy_to_host)(void* to, CudaAddress from, size_t bytes, CudaStream stream);

  // Returns null if the driver library lacks a function. The result never changes.
  static const WorkDriver* Load();
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_WORK_DRIVER_H_
