#include "bench/collective_overhead/libraries.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace nccl_pulse::overhead {
namespace {

Error Open(const std::string& path, const char* needed, void** library) {
  *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (*library != nullptr) return {};
  const char* reason = dlerror();
  return absl::StrCat(reason, "\n", needed);
}

template <typename Function>
Error Resolve(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function != nullptr) return {};
  return absl::StrCat("the library has no ", name, ": it is too old");
}

}  // namespace

Error Driver::Load() {
  void* library = nullptr;
  Error error =
      Open("libcuda.so.1",
           "This program measures on GPUs: it needs NVIDIA's driver (libcuda.so.1).", &library);
  const auto resolve = [&](const char* name, auto** function) {
    if (error.empty()) error = Resolve(library, name, function);
  };
  resolve("cuInit", &cuInit);
  resolve("cuGetErrorString", &cuGetErrorString);
  resolve("cuDriverGetVersion", &cuDriverGetVersion);
  resolve("cuDeviceGetCount", &cuDeviceGetCount);
  resolve("cuDeviceGet", &cuDeviceGet);
  resolve("cuDeviceGetName", &cuDeviceGetName);
  resolve("cuDeviceGetPCIBusId", &cuDeviceGetPCIBusId);
  resolve("cuDeviceGetAttribute", &cuDeviceGetAttribute);
  resolve("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
  resolve("cuCtxSetCurrent", &cuCtxSetCurrent);
  resolve("cuCtxSynchronize", &cuCtxSynchronize);
  resolve("cuMemAlloc_v2", &cuMemAlloc);
  resolve("cuMemFree_v2", &cuMemFree);
  resolve("cuMemcpyHtoD_v2", &cuMemcpyHtoD);
  resolve("cuMemcpyDtoH_v2", &cuMemcpyDtoH);
  resolve("cuMemsetD32_v2", &cuMemsetD32);
  resolve("cuStreamCreate", &cuStreamCreate);
  resolve("cuStreamSynchronize", &cuStreamSynchronize);
  resolve("cuStreamBeginCapture_v2", &cuStreamBeginCapture);
  resolve("cuStreamEndCapture", &cuStreamEndCapture);
  resolve("cuGraphInstantiateWithFlags", &cuGraphInstantiate);
  resolve("cuGraphLaunch", &cuGraphLaunch);
  resolve("cuGraphExecDestroy", &cuGraphExecDestroy);
  resolve("cuGraphDestroy", &cuGraphDestroy);
  resolve("cuModuleLoadData", &cuModuleLoadData);
  resolve("cuModuleGetFunction", &cuModuleGetFunction);
  resolve("cuLaunchKernel", &cuLaunchKernel);
  return error;
}

Error Driver::Check(int result, const char* what) const {
  if (result == 0) return {};
  const char* text = nullptr;
  if (cuGetErrorString(result, &text) != 0 || text == nullptr) text = "unknown";
  return absl::StrCat(what, ": error ", result, " (", text, ")");
}

Error Nccl::Load(const std::string& path) {
  void* library = nullptr;
  Error error = Open(path,
                     "This program measures NCCL: it needs libnccl.so.2 (name it with --nccl or "
                     "put its folder in LD_LIBRARY_PATH).",
                     &library);
  const auto resolve = [&](const char* name, auto** function) {
    if (error.empty()) error = Resolve(library, name, function);
  };
  resolve("ncclGetVersion", &ncclGetVersion);
  resolve("ncclGetErrorString", &ncclGetErrorString);
  resolve("ncclGetLastError", &ncclGetLastError);
  resolve("ncclGetUniqueId", &ncclGetUniqueId);
  resolve("ncclCommInitRank", &ncclCommInitRank);
  resolve("ncclCommDestroy", &ncclCommDestroy);
  resolve("ncclAllReduce", &ncclAllReduce);
  resolve("ncclAllGather", &ncclAllGather);
  resolve("ncclReduceScatter", &ncclReduceScatter);
  resolve("ncclBroadcast", &ncclBroadcast);
  resolve("ncclSend", &ncclSend);
  resolve("ncclRecv", &ncclRecv);
  resolve("ncclGroupStart", &ncclGroupStart);
  resolve("ncclGroupEnd", &ncclGroupEnd);
  return error;
}

Error Nccl::Check(int result, const char* what, NcclComm comm) const {
  if (result == 0) return {};
  const char* last = ncclGetLastError(comm);
  return absl::StrCat(what, ": ", ncclGetErrorString(result), " (", last != nullptr ? last : "",
                      ")");
}

}  // namespace nccl_pulse::overhead
