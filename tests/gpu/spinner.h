// A kernel that does not end until it is told to, launched through the driver.
//
// PTX, so that neither a compiler nor the architecture needs to be known when this is built; the
// driver translates it (Turing and newer). It gives up after a time, so that the GPU always comes
// back.
#ifndef TESTS_GPU_SPINNER_H_
#define TESTS_GPU_SPINNER_H_

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"

namespace nccl_pulse {

// spin(flag, limit_ns): until flag[0] (32 bits) is not 0, or limit_ns have passed on the GPU's
// clock. Where it has to wait it sets flag[1] to 1.
inline constexpr char kSpinPtx[] = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry spin(.param .u64 flag, .param .u64 limit_ns)
{
  .reg .pred %again;
  .reg .b32 %value;
  .reg .b64 %address;
  .reg .b64 %limit;
  .reg .b64 %begin;
  .reg .b64 %now;

  ld.param.u64 %address, [flag];
  ld.param.u64 %limit, [limit_ns];
  cvta.to.global.u64 %address, %address;
  mov.u64 %begin, %globaltimer;
look:
  ld.volatile.global.u32 %value, [%address];
  setp.ne.u32 %again, %value, 0;
  @%again bra done;
  st.volatile.global.u32 [%address+4], 1;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %again, %now, %limit;
  @%again bra look;
done:
  ret;
}
)";

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
