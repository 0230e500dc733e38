#include "plugin/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <initializer_list>

namespace nccl_pulse {
namespace {

// Finds the first of the names that the library has.
template <typename Function>
bool Find(void* library, std::initializer_list<const char*> names, Function* function) {
  for (const char* name : names) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (*function != nullptr) return true;
  }
  return false;
}

bool LoadInto(CudaDriver* driver) {
  // Never closed: it is the driver library that the job uses.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  if (!Find(library, {"cuCtxGetId"}, &driver->context_get_id)) {
    driver->context_get_id = [](CudaContext, uint64_t* id) {
      *id = 0;
      return kCudaSuccess;
    };
  }
  return Find(library, {"cuCtxGetCurrent"}, &driver->context_get_current) &&
         Find(library, {"cuCtxSetCurrent"}, &driver->context_set_current) &&
         Find(library, {"cuCtxGetDevice"}, &driver->context_get_device) &&
         Find(library, {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}, &driver->device_get_uuid) &&
         Find(library, {"cuDeviceGetPCIBusId"}, &driver->device_get_pci_bus_id) &&
         Find(library, {"cuEventCreate"}, &driver->event_create) &&
         Find(library, {"cuEventDestroy_v2", "cuEventDestroy"}, &driver->event_destroy) &&
         Find(library, {"cuEventRecord"}, &driver->event_record) &&
         Find(library, {"cuEventQuery"}, &driver->event_query) &&
         Find(library, {"cuEventElapsedTime_v2", "cuEventElapsedTime"},
              &driver->event_elapsed_time) &&
         Find(library, {"cuStreamIsCapturing"}, &driver->stream_is_capturing) &&
         Find(library, {"cuThreadExchangeStreamCaptureMode"}, &driver->exchange_capture_mode);
}

}  // namespace

const CudaDriver* CudaDriver::Load() {
  // Loaded once. The lock of init makes this safe. A guarded static would not survive a fork during
  // the call, and a child forked while another thread is in dlopen must not call dlopen.
  static CudaDriver driver;
  static bool looked = false;
  static bool loaded = false;
  if (!looked) {
    looked = true;
    loaded = LoadInto(&driver);
  }
  return loaded ? &driver : nullptr;
}

}  // namespace nccl_pulse
