#include "tests/plugin/load_fake_cuda.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace nccl_pulse {

FakeCuda& LoadFakeCuda() {
  static FakeCuda* const kGpu = [] {
    void* library = dlopen("tests/plugin/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      fprintf(stderr, "%s\n", dlerror());
      abort();
    }
    return reinterpret_cast<GetFakeCuda>(dlsym(library, kGetFakeCuda))();
  }();
  return *kGpu;
}

}  // namespace nccl_pulse
