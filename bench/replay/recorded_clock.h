// A monotonic clock that shows the time of the recording instead of today's.
//
// With it, what a plugin measures by CLOCK_MONOTONIC is exactly what was recorded, at any speed of
// the replay: inside a callback the clock stands at the callback's recorded time; on every other
// thread it stands at the newest time that any callback had. It starts at the first callback's
// time, and when the replay has ended it runs on in real time.
//
// The program that wants it links //bench/replay:recorded_clock_gettime, which defines
// clock_gettime: libraries resolve that function through the program first. Only CLOCK_MONOTONIC is
// replaced. A wait with an absolute deadline is still the kernel's real clock: a plugin under a
// recorded clock should wait with relative timeouts.
//
// Thread: SetNow for the thread's own callbacks; all others any. Cost: a few ns.
#ifndef BENCH_REPLAY_RECORDED_CLOCK_H_
#define BENCH_REPLAY_RECORDED_CLOCK_H_

#include <cstdint>

namespace nccl_pulse::recorded_clock {

// Replaces the clock from now on. It stands at `first_ns`.
void Start(int64_t first_ns);

// The calling thread enters a callback recorded at `t_ns`.
void Enter(int64_t t_ns);

// It has returned: this thread sees the common clock again.
void Leave();

// The replay has ended: the clock runs on from where it stands, in real time.
void RunOn();

// What CLOCK_MONOTONIC should show, given what it really shows; `real_ns` itself unless started.
int64_t Now(int64_t real_ns);

// Today's CLOCK_MONOTONIC, past any replacement.
int64_t RealNow();

}  // namespace nccl_pulse::recorded_clock

#endif  // BENCH_REPLAY_RECORDED_CLOCK_H_
