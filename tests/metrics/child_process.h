// Runs a piece of a test in a forked child, where limits and seccomp filters can be set that could
// not be taken back, and where a signal (SIGBUS, SIGXFSZ) is a result rather than the end of the
// test.
#ifndef TESTS_METRICS_CHILD_PROCESS_H_
#define TESTS_METRICS_CHILD_PROCESS_H_

#include <cstdint>
#include <functional>
#include <string>

namespace nccl_pulse {

// What `body` returned, or "signal N" / "exit N" when it did not come to that. No thread but the
// caller's may run.
std::string RunInChild(const std::function<std::string()>& body);

// From here on the calling process' system call `number` fails with `error`, all of them or those
// whose argument `argument` has the value `value` (its low 32 bits), or is larger than that.
struct Refusal {
  enum class When { kAlways, kArgumentIs, kArgumentAbove };
  long number;
  int error;
  When when = When::kAlways;
  int argument = 0;
  uint32_t value = 0;
};
// False when the kernel has no seccomp filters.
bool Refuse(const Refusal& refusal);

}  // namespace nccl_pulse

#endif  // TESTS_METRICS_CHILD_PROCESS_H_
