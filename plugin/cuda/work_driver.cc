#include "plugin/cuda/work_driver.h"

#include "plugin/cuda/driver_library.h"

namespace nccl_pulse {
namespace {

bool FindCalls(void* library, WorkDriver* driver) {
  return FindCall(library, "cuPointerGetAttribute", &driver->pointer_get_attribute) &&
         FindCall(library, "cuMemGetAddressRange_v2", &driver->get_address_range) &&
         FindCall(library, "cuMemRetainAllocationHandle", &driver->retain_allocation) &&
         FindCall(library, "cuMemRelease", &driver->release_allocation) &&
         FindCall(library, "cuMemAddressReserve", &driver->reserve_addresses) &&
         FindCall(library, "cuMemAddressFree", &driver->free_addresses) &&
         FindCall(library, "cuMemMap", &driver->map) &&
         FindCall(library, "cuMemUnmap", &driver->unmap) &&
         FindCall(library, "cuMemSetAccess", &driver->set_access) &&
         FindCall(library, "cuMemHostAlloc", &driver->host_allocate) &&
         FindCall(library, "cuStreamCreate", &driver->stream_create) &&
         FindCall(library, "cuStreamQuery", &driver->stream_query) &&
         FindCall(library, "cuMemcpyDtoHAsync_v2", &driver->copy_to_host);
}

}  // namespace

const WorkDriver* WorkDriver::Load() {
  static DriverLibrary<WorkDriver> library;
  return library.Load(FindCalls);
}

}  // namespace nccl_pulse
