#include "plugin/cuda/stamp_driver.h"

#include "plugin/cuda/driver_library.h"

namespace nccl_pulse {
namespace {

bool FindCalls(void* library, StampDriver* driver) {
  return FindCall(library, "cuStreamGetCaptureInfo_v2", &driver->capture_info) &&
         FindCall(library, "cuModuleLoadData", &driver->module_load_data) &&
         FindCall(library, "cuModuleGetFunction", &driver->module_get_function) &&
         FindCall(library, "cuFuncGetAttribute", &driver->function_get_attribute) &&
         FindCall(library, "cuMemHostRegister_v2", &driver->host_register) &&
         FindCall(library, "cuMemHostGetDevicePointer_v2", &driver->host_get_device_pointer) &&
         FindCall(library, "cuLaunchKernel", &driver->launch_kernel) &&
         FindCall(library, "cuGraphGetRootNodes", &driver->graph_get_root_nodes) &&
         FindCall(library, "cuGraphAddKernelNode_v2", &driver->graph_add_kernel_node) &&
         // The name without a suffix is the version without edge data, also in CUDA 13's library.
         FindCall(library, "cuGraphAddDependencies", &driver->graph_add_dependencies) &&
         FindCall(library, "cuUserObjectCreate", &driver->user_object_create) &&
         FindCall(library, "cuUserObjectRelease", &driver->user_object_release) &&
         FindCall(library, "cuGraphRetainUserObject", &driver->graph_retain_user_object);
}

}  // namespace

const StampDriver* StampDriver::Load() {
  static DriverLibrary<StampDriver> library;
  return library.Load(FindCalls);
}

}  // namespace nccl_pulse
