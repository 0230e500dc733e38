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

}  // namespace

// The line is "... http://host:PORT/metrics".
void KeepPort(int /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
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

int MetricsPort() { return metrics_port; }

const void* FindProfiler(const std::string& library, const char* symbol) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  const void* profiler = dlsym(handle, symbol);
  if (profiler == nullptr) {
    fprintf(stderr, "%s: no %s\n", library.c_str(), symbol);
    exit(2);
  }
  return profiler;
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
