// What no callback may do: two nets that catch it. hot_path_test.cc says how they work.
//
// Thread: each counts, and is trapped, for itself.
#ifndef TESTS_PLUGIN_HOT_PATH_NETS_H_
#define TESTS_PLUGIN_HOT_PATH_NETS_H_

#include <cstdint>
#include <initializer_list>

namespace nccl_pulse {

// Calls of this program and of the library in it, by this thread.
struct Counts {
  uint64_t allocations, mappings, locks, waits, calls;
  uint64_t Sum() const { return allocations + mappings + locks + waits + calls; }
};
const Counts& CountsOfThisThread();

// The exit status of a process that made a system call which was trapped.
inline constexpr int kTrappedStatus = 42;

// From here on this thread may make only these system calls. `allowed` beside: writing the verdict,
// ending, and clock_gettime, which takes the kernel's way where the vDSO has no clock.
bool TrapSystemCalls(std::initializer_list<int> allowed);

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_HOT_PATH_NETS_H_
