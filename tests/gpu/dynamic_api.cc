#include "tests/gpu/dynamic_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <initializer_list>
#include <sstream>

namespace nccl_pulse {
namespace {

// Called before there is a second thread.
void* Open(const std::string& path, std::initializer_list<const char*> names, std::string* error) {
  std::string tried;
  for (const char* name : names) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string file = folder + "/" + name;
      if (folder.empty() || access(file.c_str(), R_OK) != 0) continue;
      if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
      tried += std::string("; ") + dlerror();
    }
    if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
    tried += std::string("; ") + dlerror();
  }
  *error = "cannot load " + std::string(*names.begin()) + tried;
  return nullptr;
}

template <typename Function>
bool Resolve(void* library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) *error = std::string("no function ") + name;
  return *function != nullptr;
}

}  // namespace

bool LoadApi(const std::string& path, Api* api, std::string* error) {
  void* cuda = Open(path, {"libcudart.so.13", "libcudart.so.12"}, error);
  if (cuda == nullptr) return false;
  void* nccl = Open(path, {"libnccl.so.2"}, error);
  if (nccl == nullptr) return false;
#define NCCL_PULSE_RESOLVE(name, parameters) &&Resolve(library, #name, &api->name, error)
  void* library = nccl;
  bool found = true NCCL_PULSE_NCCL_FUNCTIONS(NCCL_PULSE_RESOLVE);
  library = cuda;
  found = found NCCL_PULSE_CUDA_FUNCTIONS(NCCL_PULSE_RESOLVE);
#undef NCCL_PULSE_RESOLVE
  return found && Resolve(nccl, "ncclGetErrorString", &api->ncclGetErrorString, error) &&
         Resolve(nccl, "ncclGetLastError", &api->ncclGetLastError, error) &&
         Resolve(cuda, "cudaGetErrorString", &api->cudaGetErrorString, error);
}

}  // namespace nccl_pulse
