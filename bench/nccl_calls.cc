#include "bench/nccl_calls.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace nccl_pulse::bench {

NcclCalls::NcclCalls(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  profiler_ = static_cast<const abi::v5::Profiler*>(dlsym(handle, "ncclProfiler_v5"));
  if (profiler_ == nullptr) {
    fprintf(stderr, "%s: no ncclProfiler_v5\n", library.c_str());
    exit(2);
  }
}

void* NcclCalls::Init(uint64_t comm_id) {
  void* context = nullptr;
  int mask = 0;
  profiler_->init(&context, comm_id, &mask, "bench", 1, 8, 0, nullptr);
  return context;
}

std::string FindLibrary(const std::string& name) {
  // `bazel run` and `bazel test` start in the runfiles; a copy beside the binary serves elsewhere.
  if (access(name.c_str(), R_OK) == 0) return "./" + name;
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof(self) - 1) > 0) {
    std::string directory = self;
    directory.resize(directory.rfind('/'));
    for (const std::string& candidate : {directory + "/" + name, directory + "/../" + name,
                                         directory + "/" + name.substr(name.rfind('/') + 1)}) {
      if (access(candidate.c_str(), R_OK) == 0) return candidate;
    }
  }
  return name;
}

}  // namespace nccl_pulse::bench
