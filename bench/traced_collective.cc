// Loads one plugin and makes eager collectives at full speed. Some are between breakpoints, where
// count_instructions.py steps through them: traced_collective PLUGIN. x86-64 only.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/nccl_calls.h"

namespace nccl_pulse::bench {
namespace {

// Between two that are stepped through. The plugin thus sees launches in quick succession, and does
// not do for each what it does after a pause (gates, samples).
constexpr int kBetween = 2000;
constexpr int kTraced = 21;

int Main(const std::string& plugin) {
  if (dlopen(FindLibrary("bench/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  NcclCalls calls(plugin);
  void* context = calls.Init(0x1234);
  uint64_t sequence = 0;
  for (int i = 0; i < kTraced; ++i) {
    for (int j = 0; j < kBetween; ++j) calls.EagerCollective(context, sequence++, 24);
#if defined(__x86_64__)
    asm volatile("int3" ::: "memory");
#endif
    calls.EagerCollective(context, sequence++, 24);
#if defined(__x86_64__)
    asm volatile("int3" ::: "memory");
#endif
  }
  _Exit(0);  // the plugin's threads and its end do not matter here
}

}  // namespace
}  // namespace nccl_pulse::bench

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return nccl_pulse::bench::Main(argv[1]);
}
