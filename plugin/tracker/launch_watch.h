// What the background thread sees of one communicator's launches from look to look: what completed,
// which timed ones ended, how long the oldest has stood still.
//
// Thread: the background thread. Cost: the driver's calls, see stream_timer.h and bench/poll.cc.
#ifndef PLUGIN_TRACKER_LAUNCH_WATCH_H_
#define PLUGIN_TRACKER_LAUNCH_WATCH_H_

#include <cstdint>

#include "plugin/cuda/stream_timer.h"

namespace nccl_pulse {

struct Communicator;
struct Instruments;
class WorkFollower;

// How long the oldest launch in flight has stood, while nothing completes. A wait counts as long as
// it was seen to last: a thread that was stopped meanwhile, or stuck in the driver, does not know
// when it ended.
class Standstill {
 public:
  struct Wait {
    uint64_t ns = 0;  // 0: none that counts has ended
    uint64_t ended_ns = 0;
    uint64_t last_call = 0;
  };
  // `record_generation`: of the communicator that this is about, another one begins anew.
  // `last_call`: LastCall. `lives`: a wait that ends with its communicator did not end well.
  Wait Look(uint32_t record_generation, const StreamTimer::Progress& progress, uint64_t now_ns,
            uint64_t last_call, bool lives);

 private:
  uint32_t record_generation_;
  uint64_t last_call_;  // when it was last seen
  uint64_t since_ns_;   // 0: something completes, or nothing is in flight
  uint64_t seen_ns_;    // when it was last seen to last
  uint64_t unseen_ns_;  // how much of it passed without a look
};

// Of one communicator. Zeroes are its initial state.
class LaunchWatch {
 public:
  // Takes up what the events say, into the record. Returns true while launches are in flight, or were
  // until just now. `may_destroy`: the events of a communicator that is over. `is_stalled` becomes
  // true if launches have been in flight without progress for a second.
  bool Poll(Instruments& instruments, Communicator& communicator, const WorkFollower& work,
            uint64_t now_ns, bool may_destroy, bool* is_stalled);

 private:
  Standstill standstill_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_LAUNCH_WATCH_H_
