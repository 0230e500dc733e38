// Counts the collectives of a communicator of which NCCL reported the call and nothing else, so
// that each operation has a duration or a reason: theirs is kUnreported.
//
// By operation, of what the communicator's lanes have counted:
//
//     calls that were not captured
//   - operations that NCCL reported
//   - calls that were followed alone and counted there (LaunchFollower::EndGroup)
//   - those that were counted here before
//   - calls that stand in the last group, or whose launch NCCL is just making: their operations may
//     still come
//
// That sum may be too high for moments: between a launch that another thread makes and the
// operations that are reported right behind it, and within a group that NCCL tells of in two parts
// (unreported_launch.cc). So it counts when it has been at least so high at each of several looks
// in a row.
//
// Not told: AlltoAll, Gather and Scatter, whose operations NCCL reports as Send and Recv. These it
// reports all, but those to oneself in place, which are no operations. Nor anything of a
// communicator with captured calls (NCCL reports their operations at other times, or with each
// replay), and of one whose series overflowed.
//
// Thread: the background thread. Cost: nothing for a communicator that has had calls alone and all
// of them launched (LaunchFollower::may_hide); else about 1 us a look.
#ifndef PLUGIN_TRACKER_UNREPORTED_OPERATIONS_H_
#define PLUGIN_TRACKER_UNREPORTED_OPERATIONS_H_

#include <cstdint>

namespace nccl_pulse {

struct Communicator;
struct Instruments;

// Of one communicator. Zeroes are its initial state.
class UnreportedOperations {
 public:
  static constexpr uint32_t kLooks = 20;

  void Look(Instruments& instruments, const Communicator& communicator);

 private:
  // Up to Reduce: the collectives come first among the names. What a later NCCL invents is not
  // told.
  static constexpr uint32_t kRows = 9;

  uint32_t record_generation_;
  uint16_t looks_;
  uint16_t least_[kRows];  // over the last looks; of more the rest counts later
};
static_assert(sizeof(UnreportedOperations) <= 32, "the rest of a line, CommunicatorParts");

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_UNREPORTED_OPERATIONS_H_
