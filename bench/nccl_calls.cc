#include "bench/nccl_calls.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nccl_pulse::bench {
namespace {

int metrics_port = 0;

// Takes the place of NCCL's logger and keeps the port from "... http://host:PORT/metrics".
__attribute__((format(printf, 5, 6))) void Listen(int /*level*/, unsigned long /*flags*/,
                                                  const char* /*file*/, int /*line*/,
                                                  const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const char* path = strstr(text, "/metrics");
  if (strstr(text, "http://") == nullptr || path == nullptr) return;
  while (path > text && *path != ':') --path;
  metrics_port = atoi(path + 1);
}

}  // namespace

int NcclCalls::MetricsPort() { return metrics_port; }

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
  profiler_->init(&context, comm_id, &mask, "bench", 1, 8, 0, Listen);
  return context;
}

std::string FindLibrary(const std::string& name) {
  // `bazel run` and `bazel test` start in the runfiles. Elsewhere a copy beside the binary is used.
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
