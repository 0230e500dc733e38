// CudaDriver holds the CUDA driver's functions that the plugin calls. They are found in
// libcuda.so.1 at run time, so that the plugin loads on machines without a GPU and is built without
// CUDA.
//
// Types and numbers are the driver API's (cuda.h 13.0): CUresult, CUdevice and the capture
// enumerations are int, CUevent, CUstream and CUcontext pointers; a cudaStream_t is a CUstream. The
// handles 0 (default), 1 (legacy) and 2 (per-thread) are streams of the calling thread's current
// context; 0 is the legacy stream for these functions, as it is for NCCL.
//
// Thread: Load from init; the functions: see their callers. Cost on an H200 host: record 0.1 us
// (without timing), 2.9 us (with), query 1.2 us, is-capturing 0.01 us.
#ifndef PLUGIN_CUDA_CUDA_DRIVER_H_
#define PLUGIN_CUDA_CUDA_DRIVER_H_

#include <cstdint>

namespace nccl_pulse {

using CudaEvent = void*;
using CudaStream = void*;
using CudaContext = void*;

inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaInvalidContext = 201;
inline constexpr int kCudaNotReady = 600;
// Errors of a stream query that is not allowed during a capture:
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900) to CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD (908). The
// legacy stream returns 906 while another stream is captured in global mode.
inline constexpr int kCudaFirstCaptureError = 900;
inline constexpr int kCudaLastCaptureError = 908;
inline constexpr unsigned kCudaEventTiming = 0;         // CU_EVENT_DEFAULT
inline constexpr unsigned kCudaEventWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr int kCudaNotCapturing = 0;             // CU_STREAM_CAPTURE_STATUS_NONE
inline constexpr int kCudaCaptureModeRelaxed = 2;       // CU_STREAM_CAPTURE_MODE_RELAXED

struct CudaDriver {
  int (*context_get_current)(CudaContext* context);
  int (*context_set_current)(CudaContext context);
  int (*context_get_device)(int* device);
  // Stores an ID that distinguishes a context from a later one at the same address. Fails with a
  // driver older than CUDA 12.0: a destroyed context could not be recognized there, and making it
  // current crashes the application.
  int (*context_get_id)(CudaContext context, uint64_t* id);
  int (*device_get_uuid)(unsigned char* uuid, int device);
  int (*device_get_pci_bus_id)(char* text, int length, int device);
  int (*event_create)(CudaEvent* event, unsigned flags);
  int (*event_destroy)(CudaEvent event);
  int (*event_record)(CudaEvent event, CudaStream stream);
  int (*event_query)(CudaEvent event);
  int (*event_elapsed_time)(float* milliseconds, CudaEvent begin, CudaEvent end);
  int (*stream_is_capturing)(CudaStream stream, int* status);
  int (*exchange_capture_mode)(int* mode);
  // Returns the device's index on the node, or -1. Null except in the simulated driver of `pulse
  // demo` (simulation/driver.cc): a simulated GPU has no entry in /proc/driver/nvidia.
  int (*simulated_device_index)();

  // Returns null if there is no driver library, or if it lacks a function other than
  // context_get_id. The result never changes, not in forked children either.
  static const CudaDriver* Load();
};

// Makes a context current on the calling thread. Returns kCudaSuccess, kCudaInvalidContext if the
// context was destroyed or replaced by another at its address (cudaDeviceReset), or the driver's
// error. The ID is checked first: making a destroyed context current crashes the application's next
// CUDA call.
inline int EnterContext(const CudaDriver& driver, CudaContext context, uint64_t id) {
  uint64_t found = 0;
  const int result = driver.context_get_id(context, &found);
  if (result != kCudaSuccess) return result;
  return found == id ? driver.context_set_current(context) : kCudaInvalidContext;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_CUDA_DRIVER_H_
