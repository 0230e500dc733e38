// Counts one operation or launch: its call, its duration, or why it has none.
//
// Thread: where a lane is given, its holder; else any. Cost: about 10 ns, with a lane's claim 20.
#ifndef PLUGIN_TRACKER_COUNTING_H_
#define PLUGIN_TRACKER_COUNTING_H_

#include <cstdint>

#include "metrics/kinds.h"
#include "metrics/lane_writer.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/operation_slot.h"
#include "plugin/tracker/timed_launches.h"

namespace nccl_pulse {

// It has no duration, for that reason.
[[gnu::noinline]] void CountUntimed(LaneWriter& lane, uint8_t op, UntimedReason reason);

// A duration, or a time until completion.
struct Latency {
  LatencyKind kind;
  OperationMeta meta;
  uint64_t bytes, bus_bytes;
  uint64_t duration_ns, end_ns;
};
void CountLatency(Segment& segment, const Communicator& communicator, LaneWriter& lane,
                  const Latency& latency);

// The callbacks of a launch that is not followed; `is_launch`: one that is made now.
void CountLaunchCallback(const Communicator& communicator, bool is_launch);
// A launch that was timed has ended; `launch_ns`: when it was made. `record_generation`: of the
// communicator that it is about.
void CountTimedLaunch(Instruments& instruments, const Communicator& communicator,
                      uint32_t record_generation, const TimedLaunches::Load& load,
                      uint64_t launch_ns, uint64_t duration_ns);
// Or it will have no duration. Of several operations each has been counted as one of a group.
[[gnu::cold, gnu::noinline]] void CountLostLaunch(Instruments& instruments,
                                                  const Communicator& communicator,
                                                  uint32_t record_generation,
                                                  const TimedLaunches::Load& load);

// Bus bytes of an operation of that communicator.
uint64_t BusBytesOf(const Communicator& communicator, uint8_t op, uint64_t bytes);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COUNTING_H_
