// A kernel that does not end until it is told to, launched through the driver.
#ifndef TESTS_GPU_SPINNER_H_
#define TESTS_GPU_SPINNER_H_

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"
#include "tests/gpu/spin_kernel.h"

namespace nccl_pulse {

// The context must be current.
class Spinner {
 public:
  Spinner() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) Fail("cannot load libcuda.so.1");
    Resolve(driver, "cuMemHostAlloc", &host_alloc_);
    Resolve(driver, "cuModuleLoadData", &load_);
    Resolve(driver, "cuModuleGetFunction", &get_function_);
    Resolve(driver, "cuLaunchKernel", &launch_);
    constexpr unsigned kPortableAndMapped = 3;
    void* module = nullptr;
    Check(host_alloc_(&flag_, sizeof(uint64_t), kPortableAndMapped), "cuMemHostAlloc");
    *static_cast<uint64_t*>(flag_) = 0;
    Check(load_(&module, kSpinPtx), "cuModuleLoadData");
    Check(get_function_(&function_, module, "spin"), "cuModuleGetFunction");
  }

  void Launch(CudaStream stream, uint64_t limit_ns) {
    void* parameters[] = {&flag_, &limit_ns};
    Check(launch_(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
  }

  // All of them, and those that are launched later, until Hold.
  void End() { Word(0).store(1); }
  bool IsEnded() const { return Word(0).load() != 0; }
  // Those that begin from now on do not end before End.
  void Hold() {
    Word(1).store(0);
    Word(0).store(0);
  }
  // Whether one has been seen to wait since Hold.
  bool IsHolding() const { return Word(1).load() != 0; }

 private:
  std::atomic<uint32_t>& Word(int i) const { return static_cast<std::atomic<uint32_t>*>(flag_)[i]; }
  template <typename Function>
  void Resolve(void* driver, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(driver, name));
    if (*function == nullptr) Fail(std::string("the driver has no ") + name);
  }
  void Check(int result, const char* what) {
    if (result != 0) Fail(std::string(what) + ": error " + std::to_string(result));
  }

  int (*host_alloc_)(void** memory, size_t bytes, unsigned flags) = nullptr;
  int (*load_)(void** module, const void* image) = nullptr;
  int (*get_function_)(void** function, void* module, const char* name) = nullptr;
  int (*launch_)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                 void* stream, void** parameters, void** extra) = nullptr;
  void* function_ = nullptr;
  void* flag_ = nullptr;  // the host's address is the device's, too
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_SPINNER_H_
