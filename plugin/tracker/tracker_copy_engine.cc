// Tracker, the part for copy-engine collectives. They are launches without a kernel, of one
// operation each, and are timed and followed like other launches.
//
// NCCL makes their copies on the launch's stream between CeColl start and stop, on the launching
// thread, and orders them with its kernels (2.29, src/ce_coll.cc: ncclLaunchCeColl; src/group.cc:
// doLaunches). It reports them neither as KernelLaunch nor as Coll.
#include "plugin/tracker/counting.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

uint64_t Tracker::StartCopyEngineOperation(uint64_t context, const CopyEngineEvent& event) {
  Communicator* communicator = communicators_.Find(context);
  if (communicator == nullptr) return 0;
  CommunicatorParts& parts = *communicator->parts.load();
  const Visit::Stay stay(parts.launching);
  if (communicator->context.load() != context) return 0;  // finalized meanwhile
  LaunchFollower& launches = parts.launches;
  const bool can_follow = launches.is_followed();
  const bool captured =
      IsCalledIntoGraph(*communicator, event.parent) ||
      (can_follow && launches.IsInCapture(instruments_, *communicator, event.stream));
  // Checked again: the driver may have failed just now.
  const bool followed = !captured && launches.is_followed();
  const NameId op = instruments_.names.Find(event.func).id;
  const uint64_t bytes = event.count * instruments_.names.Find(event.datatype).element_bytes;
  uint64_t ticket = 0;
  bool is_timed = false;
  if (followed) {
    if (!launches.knows_thread()) launches.LearnThread(groups_.Current());
    ticket = launches.StartCopies(instruments_, *communicator, event,
                                  {op, static_cast<uint8_t>(SizeClassOf(bytes)), 0, false, 0},
                                  bytes, context, &is_timed);
  } else if (!captured) {
    launches.CoverCalls();
  }
  LaneWriter lane = communicator->ClaimLane(instruments_.segment, LaneRole::kOther);
  if (!lane.ok()) {
    Ignore(IgnoredReason::kNoRoom);
    return ticket;
  }
  lane.lane().callbacks[static_cast<int>(CallbackKind::kOperation)].publish_sum(1);
  lane.Count(SeriesKey::Algorithm(op, SeriesKey::kTimed, instruments_.names.Find("CE").id, kNoName),
             1, 0);
  // A followed launch is counted by its stop.
  if (!captured && !followed) lane.lane().launches.publish_sum(1);
  if (!is_timed) {
    CountUntimed(lane, op,
                 instruments_.times_kernels() ? UntimedReason::kInvisible
                 : captured                   ? UntimedReason::kCaptured
                 : followed                   ? UntimedReason::kNotSampled
                                              : UntimedReason::kNotTimed);
  }
  return ticket;
}

}  // namespace nccl_pulse
