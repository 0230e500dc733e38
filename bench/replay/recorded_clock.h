// A monotonic clock that shows recorded time.
//
// With it a plugin measures exactly the recorded CLOCK_MONOTONIC times, at any replay speed. Inside
// a callback the clock shows the callback's recorded time; on other threads the newest time of any
// callback. It starts at the first callback's time. After the replay it continues in real time.
//
// recorded_clock.cc defines the program's clock_gettime: libraries resolve that function
// through the program first. Only CLOCK_MONOTONIC is replaced. A wait with an absolute deadline
// still uses the kernel's clock, so a plugin should use relative timeouts.
//
// Thread: Enter and Leave for the thread's own callbacks; the others any. Cost: a few ns.
#ifndef BENCH_REPLAY_RECORDED_CLOCK_H_
#define BENCH_REPLAY_RECORDED_CLOCK_H_

#include <cstdint>

namespace nccl_pulse::recorded_clock {

// Replaces the clock from now on. It shows `first_ns`.
void Start(int64_t first_ns);

// The calling thread enters a callback recorded at `t_ns`.
void Enter(int64_t t_ns);

// The callback has returned: this thread sees the common clock again.
void Leave();

// The replay has ended: the clock continues in real time.
void RunOn();

// Returns the time for CLOCK_MONOTONIC, given the real one; `real_ns` itself unless started.
int64_t Now(int64_t real_ns);

// Returns the real CLOCK_MONOTONIC, bypassing any replacement.
int64_t RealNow();

}  // namespace nccl_pulse::recorded_clock

#endif  // BENCH_REPLAY_RECORDED_CLOCK_H_
