// Ctrl-C or SIGTERM: whether this process has been asked to stop. Parent and children of a replay
// each have their own.
//
// Thread: any.
#ifndef PLUGIN_REPLAY_STOP_REQUEST_H_
#define PLUGIN_REPLAY_STOP_REQUEST_H_

#include <atomic>

namespace nccl_pulse {

// Set by the signals' handler.
extern std::atomic<bool> stop_requested;

// From now on the signals set it.
void HandleStopSignals();

}  // namespace nccl_pulse

#endif  // PLUGIN_REPLAY_STOP_REQUEST_H_
