// Ctrl-C or SIGTERM: whether this process has been asked to stop. Parent and children of a replay
// each have their own.
//
// Thread: any.
#ifndef BENCH_REPLAY_STOP_REQUEST_H_
#define BENCH_REPLAY_STOP_REQUEST_H_

#include <atomic>

namespace nccl_pulse {

// Set by the signals' handler.
extern std::atomic<bool> stop_requested;

// From now on the signals set it.
void HandleStopSignals();

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_STOP_REQUEST_H_
