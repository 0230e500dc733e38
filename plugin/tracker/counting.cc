#include "plugin/tracker/counting.h"

#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/communicator_parts.h"

namespace nccl_pulse {

void CountUntimed(LaneWriter& lane, uint8_t op, UntimedReason reason) {
  lane.Count(SeriesKey::Untimed(op, reason), 1, 0);
}

void CountLatency(Segment& segment, const Communicator& communicator, LaneWriter& lane,
                  const Latency& latency) {
  const OperationMeta& meta = latency.meta;
  const uint64_t key = SeriesKey::Latency(meta.op, meta.size_class, latency.kind);
  lane.Observe(SeriesKey::WithTag(key, meta.user_tag), latency.duration_ns, latency.bytes,
               latency.bus_bytes);
  if (latency.kind == LatencyKind::kCompletionProxy ||
      latency.kind == LatencyKind::kCompletionKernel) {
    lane.lane().last_completion_ns.store(latency.end_ns);
  }
  communicator.Writer(segment).AppendTimedCall({meta.op, latency.kind, meta.size_class,
                                                meta.call_number, latency.bytes,
                                                latency.duration_ns, latency.end_ns});
}

void CountLaunchCallback(const Communicator& communicator, bool is_launch) {
  Lane& lane = communicator.record->lanes[static_cast<int>(LaneRole::kLaunch)];
  lane.callbacks[static_cast<int>(CallbackKind::kLaunch)].publish_sum(1);
  if (is_launch) lane.launches.publish_sum(1);
}

void CountTimedLaunch(Instruments& instruments, const Communicator& communicator,
                      uint32_t record_generation, const TimedLaunches::Load& load,
                      uint64_t launch_ns, uint64_t duration_ns) {
  Segment& segment = instruments.segment;
  LaneWriter lane(segment, *communicator.record, record_generation, LaneRole::kProgress);
  if (!lane.ok()) return instruments.Ignore(IgnoredReason::kNoRoom);
  CountLatency(segment, communicator, lane,
               {LatencyKind::kDurationStream, load.meta, load.bytes, load.bus_bytes, duration_ns,
                launch_ns + duration_ns});
}

void CountLostLaunch(Instruments& instruments, const Communicator& communicator,
                     uint32_t record_generation, const TimedLaunches::Load& load) {
  if (!load.is_single) return;
  LaneWriter lane(instruments.segment, *communicator.record, record_generation,
                  LaneRole::kProgress);
  if (!lane.ok()) return instruments.Ignore(IgnoredReason::kNoRoom);
  CountUntimed(lane, load.meta.op, UntimedReason::kLost);
}

uint64_t BusBytesOf(const Communicator& communicator, uint8_t op, uint64_t bytes) {
  return BusBytes(op, bytes, communicator.nranks.load());
}

}  // namespace nccl_pulse
