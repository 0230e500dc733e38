#include "plugin/cuda/stamp_driver.h"

#include <dlfcn.h>

namespace nccl_pulse {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool LoadInto(StampDriver* driver) {
  // The driver library that the job uses; never closed.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && Find(library, "cuStreamGetCaptureInfo_v2", &driver->capture_info) &&
         Find(library, "cuModuleLoadData", &driver->module_load_data) &&
         Find(library, "cuModuleGetFunction", &driver->module_get_function) &&
         Find(library, "cuFuncGetAttribute", &driver->function_get_attribute) &&
         Find(library, "cuMemHostRegister_v2", &driver->host_register) &&
         Find(library, "cuMemHostGetDevicePointer_v2", &driver->host_get_device_pointer) &&
         Find(library, "cuLaunchKernel", &driver->launch_kernel) &&
         Find(library, "cuUserObjectCreate", &driver->user_object_create) &&
         Find(library, "cuUserObjectRelease", &driver->user_object_release) &&
         Find(library, "cuGraphRetainUserObject", &driver->graph_retain_user_object);
}

}  // namespace

const StampDriver* StampDriver::Load() {
  // As in CudaDriver::Load.
  static StampDriver driver;
  static bool looked = false;
  static bool loaded = false;
  if (!looked) {
    looked = true;
    loaded = LoadInto(&driver);
  }
  return loaded ? &driver : nullptr;
}

}  // namespace nccl_pulse
