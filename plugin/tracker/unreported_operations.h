// UnreportedOperations counts a communicator's collectives for which NCCL reported only the call.
// Every operation thus has a duration or a reason for lacking one; here the reason is kUnreported.
//
// The number, per operation, from the communicator's lanes:
//
//     calls that were not captured
//   - operations that NCCL reported
//   - ungrouped calls that were followed and counted by LaunchFollower::EndGroup
//   - operations that were counted here before
//   - calls of the last group without a launch, or with a launch in progress: their operations may
//     still come
//
// The number can be too high for moments: between another thread's launch and the reports of its
// operations, and within a group that NCCL reports in two parts (unreported_launch.cc). So only its
// minimum over kLooks polls in a row counts.
//
// Not counted: AlltoAll, Gather and Scatter, because NCCL reports their operations as Send and
// Recv. Communicators with captured calls, because NCCL reports their operations at other times, or
// with each replay. Communicators whose series overflowed.
//
// Thread: the background thread. Cost: nothing if all calls were ungrouped and launched
// (LaunchFollower::may_hide), else about 1 us a poll.
#ifndef PLUGIN_TRACKER_UNREPORTED_OPERATIONS_H_
#define PLUGIN_TRACKER_UNREPORTED_OPERATIONS_H_

#include <cstdint>

namespace nccl_pulse {

struct Communicator;
struct Instruments;

// One per communicator. All-zero memory is the initial state.
class UnreportedOperations {
 public:
  static constexpr uint32_t kLooks = 20;

  void Look(Instruments& instruments, const Communicator& communicator);

 private:
  // Rows up to Reduce (OperationRowOf): collectives come first. Operations of later NCCL releases
  // are not counted.
  static constexpr uint32_t kRows = 9;

  uint32_t record_generation_;
  uint16_t looks_;         // number of polls since the last count, up to kLooks
  uint16_t least_[kRows];  // minimum over these polls; an excess over 16 bits is counted later
};
static_assert(sizeof(UnreportedOperations) <= 32, "the rest of a line, CommunicatorParts");

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_UNREPORTED_OPERATIONS_H_
