// LaunchPoller polls one communicator's launches: their completion, the durations of timed
// launches, and how long nothing has completed.
//
// Thread: the background thread. Cost: the driver's calls, see stream_timer.h; 0.31 % of a core at
// 10,000 launches a second (tests/gpu/node_load.py).
#ifndef PLUGIN_TRACKER_LAUNCH_POLLER_H_
#define PLUGIN_TRACKER_LAUNCH_POLLER_H_

#include <cstdint>

#include "plugin/cuda/stream_timer.h"

namespace nccl_pulse {

struct Communicator;
struct Instruments;
class WorkFollower;

// Standstill measures how long nothing completes while launches are in flight. Time between polls
// more than 5 s apart does not count: a thread that was stopped, or stuck in the driver, cannot
// know when a wait ended.
class Standstill {
 public:
  struct Wait {
    uint64_t ns = 0;  // length; 0: no wait of at least a second has ended
    uint64_t ended_ns = 0;
    uint64_t last_call = 0;
  };
  // Takes a poll's `progress`, and returns the wait that it ended, if any. If `record_generation`
  // has changed, this Standstill now serves another communicator, and forgets earlier polls.
  // `last_call`: the communicator's last call, returned with the wait. `lives`: false if the
  // communicator has ended; then it returns no wait.
  Wait Look(uint32_t record_generation, const StreamTimer::Progress& progress, uint64_t now_ns,
            uint64_t last_call, bool lives);

 private:
  uint32_t record_generation_;
  uint64_t last_call_;  // at the last poll
  uint64_t since_ns_;   // 0: something completes, or nothing is in flight
  uint64_t seen_ns_;    // last poll that saw the wait
  uint64_t unseen_ns_;  // the part of the wait that does not count
};

// One per communicator. All-zero memory is the initial state.
class LaunchPoller {
 public:
  // Polls the events and writes their state into the record. Returns true while launches are in
  // flight, or if some have completed since the last poll. `may_destroy`: destroys the events of an
  // ended communicator. Sets `is_stalled` if launches in flight have made no progress for a second.
  bool Poll(Instruments& instruments, Communicator& communicator, const WorkFollower& work,
            uint64_t now_ns, bool may_destroy, bool* is_stalled);

 private:
  Standstill standstill_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_LAUNCH_POLLER_H_
