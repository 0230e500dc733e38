// Functions that count an operation or a launch: its duration, or the reason for having none.
//
// Thread: functions with a LaneWriter, the thread that holds the lane; CountLaunchCallback, the
// launching thread; the others any. Cost: about 10 ns, 20 ns if they claim a lane.
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

// Counts an operation without a duration.
[[gnu::noinline]] void CountUntimed(LaneWriter& lane, uint8_t op, UntimedReason reason);

// One latency: a duration, or the time from the enqueue to completion.
struct Latency {
  LatencyKind kind;
  OperationMeta meta;
  uint64_t bytes, bus_bytes;
  uint64_t duration_ns, end_ns;
};
void CountLatency(Segment& segment, const Communicator& communicator, LaneWriter& lane,
                  const Latency& latency);

// Counts a launch callback whose launch has no CUDA event behind it. `is_launch`: false if the
// launch is only captured, or was never made.
void CountLaunchCallback(const Communicator& communicator, bool is_launch);
// Counts the duration of a timed launch made at `launch_ns`. `record_generation`: generation of the
// communicator's record.
void CountTimedLaunch(Instruments& instruments, const Communicator& communicator,
                      uint32_t record_generation, const TimedLaunches::Load& load,
                      uint64_t launch_ns, uint64_t duration_ns);
// Counts the operation of a timed launch whose duration was lost. Does nothing for a launch with
// several operations: they were counted as untimed (grouped) before.
[[gnu::cold, gnu::noinline]] void CountLostLaunch(Instruments& instruments,
                                                  const Communicator& communicator,
                                                  uint32_t record_generation,
                                                  const TimedLaunches::Load& load);

// Returns the bus bytes of an operation of this communicator.
uint64_t BusBytesOf(const Communicator& communicator, uint8_t op, uint64_t bytes);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COUNTING_H_
