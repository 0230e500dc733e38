#include "plugin/runtime/calling_thread.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace nccl_pulse {

bool IsBlockingInit() {
  // NCCL puts what stands in its configuration files into the environment. An environment plugin
  // (2.29) may answer otherwise.
  for (const char* variable : {"NCCL_COMM_BLOCKING", "NCCL_ENV_PLUGIN"}) {
    if (getenv(variable) != nullptr) return false;  // NOLINT(concurrency-mt-unsafe)
  }
  return syscall(SYS_gettid) == getpid();
}

}  // namespace nccl_pulse
