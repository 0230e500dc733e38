#include "plugin/cuda/cuda_driver.h"

#include "plugin/cuda/driver_library.h"

namespace nccl_pulse {
namespace {

bool FindCalls(void* library, CudaDriver* driver) {
  if (!FindCall(library, "cuCtxGetId", &driver->context_get_id)) {
    driver->context_get_id = [](CudaContext, uint64_t*) { return kCudaInvalidContext; };
  }
  if (!FindCall(library, "pulseSimulatedDeviceIndex", &driver->simulated_device_index)) {
    driver->simulated_device_index = nullptr;
  }
  return FindCall(library, "cuCtxGetCurrent", &driver->context_get_current) &&
         FindCall(library, "cuCtxSetCurrent", &driver->context_set_current) &&
         FindCall(library, "cuCtxGetDevice", &driver->context_get_device) &&
         // Version 2 returns the UUID of a MIG instance, which no monitor of GPUs has as its label.
         (FindCall(library, "cuDeviceGetUuid", &driver->device_get_uuid) ||
          FindCall(library, "cuDeviceGetUuid_v2", &driver->device_get_uuid)) &&
         FindCall(library, "cuDeviceGetPCIBusId", &driver->device_get_pci_bus_id) &&
         FindCall(library, "cuEventCreate", &driver->event_create) &&
         (FindCall(library, "cuEventDestroy_v2", &driver->event_destroy) ||
          FindCall(library, "cuEventDestroy", &driver->event_destroy)) &&
         FindCall(library, "cuEventRecord", &driver->event_record) &&
         FindCall(library, "cuEventQuery", &driver->event_query) &&
         (FindCall(library, "cuEventElapsedTime_v2", &driver->event_elapsed_time) ||
          FindCall(library, "cuEventElapsedTime", &driver->event_elapsed_time)) &&
         FindCall(library, "cuStreamIsCapturing", &driver->stream_is_capturing) &&
         FindCall(library, "cuThreadExchangeStreamCaptureMode", &driver->exchange_capture_mode);
}

}  // namespace

const CudaDriver* CudaDriver::Load() {
  static DriverLibrary<CudaDriver> library;
  return library.Load(FindCalls);
}

}  // namespace nccl_pulse
