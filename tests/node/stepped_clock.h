// The wall clock as if an administrator, or a time daemon, had set it.
//
// The program that links this defines clock_gettime, and libraries find that one first. Only
// CLOCK_REALTIME is changed, as by a real step.
#ifndef TESTS_NODE_STEPPED_CLOCK_H_
#define TESTS_NODE_STEPPED_CLOCK_H_

namespace nccl_pulse {

// Seconds from the true time, forward or back. Thread: any.
void SetClock(long seconds);

}  // namespace nccl_pulse

#endif  // TESTS_NODE_STEPPED_CLOCK_H_
