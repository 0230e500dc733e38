// The driver's functions for kernels of a program's own. There is one: tests/gpu/spin_kernel.h,
// which waits until its flag is set or its time is over.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/fake/cuda.h"

using nccl_pulse::fake::Stream;

namespace nccl_pulse::fake {
namespace {

int g_module;  // the only one: its address
int g_function;

void Spin(std::atomic<uint32_t>* flag, std::chrono::nanoseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (flag[0].load() == 0 && std::chrono::steady_clock::now() < end) {
    flag[1].store(1);
    usleep(1000);
  }
}

}  // namespace
}  // namespace nccl_pulse::fake

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
extern "C" {

int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::calloc(1, bytes);
  return *memory != nullptr ? 0 : 2;
}
int cuModuleLoadData(void** module, const void* image) {
  *module = &nccl_pulse::fake::g_module;
  return std::strstr(static_cast<const char*>(image), ".entry spin(") != nullptr ? 0 : 218;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = &nccl_pulse::fake::g_function;
  return std::strcmp(name, "spin") == 0 ? 0 : 500;
}
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void* stream, void** parameters, void**) {
  auto* flag = *static_cast<std::atomic<uint32_t>**>(parameters[0]);
  const std::chrono::nanoseconds limit(*static_cast<uint64_t*>(parameters[1]));
  auto* on = static_cast<Stream*>(stream);
  if (on->capture != nullptr) {
    on->capture->nodes.emplace_back([flag, limit] { nccl_pulse::fake::Spin(flag, limit); });
    return 0;
  }
  on->kernel_times->KernelEnqueued();
  on->Run([flag, limit, timeline = on->kernel_times] {
    nccl_pulse::fake::Spin(flag, limit);
    timeline->KernelEnded();
  });
  return 0;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
