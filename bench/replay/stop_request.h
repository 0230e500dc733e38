// Flag for Ctrl-C or SIGTERM. Parent and children of a replay each have their own.
//
// Thread: any.
#ifndef BENCH_REPLAY_STOP_REQUEST_H_
#define BENCH_REPLAY_STOP_REQUEST_H_

#include <atomic>

namespace nccl_pulse {

// Set by the signal handler.
extern std::atomic<bool> stop_requested;

// Installs the signal handler.
void HandleStopSignals();

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_STOP_REQUEST_H_
