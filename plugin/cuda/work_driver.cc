#include "plugin/cuda/work_driver.h"

#include <dlfcn.h>

namespace nccl_pulse {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool LoadInto(WorkDriver* driver) {
  // The driver library that the job uses; never closed.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr &&
         Find(library, "cuPointerGetAttribute", &driver->pointer_get_attribute) &&
         Find(library, "cuMemGetAddressRange_v2", &driver->get_address_range) &&
         Find(library, "cuMemRetainAllocationHandle", &driver->retain_allocation) &&
         Find(library, "cuMemRelease", &driver->release_allocation) &&
         Find(library, "cuMemAddressReserve", &driver->reserve_addresses) &&
         Find(library, "cuMemAddressFree", &driver->free_addresses) &&
         Find(library, "cuMemMap", &driver->map) && Find(library, "cuMemUnmap", &driver->unmap) &&
         Find(library, "cuMemSetAccess", &driver->set_access) &&
         Find(library, "cuMemHostAlloc", &driver->host_allocate) &&
         Find(library, "cuStreamCreate", &driver->stream_create) &&
         Find(library, "cuStreamQuery", &driver->stream_query) &&
         Find(library, "cuMemcpyDtoHAsync_v2", &driver->copy_to_host);
}

}  // namespace

const WorkDriver* WorkDriver::Load() {
  // As in CudaDriver::Load.
  static WorkDriver driver;
  static bool looked = false;
  static bool loaded = false;
  if (!looked) {
    looked = true;
    loaded = LoadInto(&driver);
  }
  return loaded ? &driver : nullptr;
}

}  // namespace nccl_pulse
