// Tracker, the part for calls and launches. It finds the communicator; LaunchFollower follows the
// launch.
#include "plugin/tracker/counting.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

uint64_t Tracker::ShowGroup(const Communicator& communicator, uint64_t ticket, bool is_one_call) {
  instruments_.ranges.PushGroup(is_one_call, *communicator.record);
  if (ticket != 0) return ticket;
  return Ticket::Pack(instruments_.process_tag, TicketKind::kShown, 0, 0, 0, communicator.index);
}

void Tracker::StopGroup(uint64_t ticket) {
  if (Ticket::Child(ticket) != 0) return;  // of a graph
  Communicator& communicator = communicators_.At(ticket);
  const uint64_t context = communicator.context.acquire();  // sees the events
  if (context == 0 || Ticket::Generation(ticket) != Ticket::Generation(context)) return;
  CommunicatorParts& parts = *communicator.parts.load();
  if (!parts.launches.IsFollowed(instruments_)) return;
  const uint64_t made_ns = parts.launches.EndGroup(
      instruments_, communicator, parts.ring, groups_.Current(), Ticket::Operation(ticket) != 0);
  if (made_ns == 0) return;
  parts.last_calls.NoteLaunch(made_ns,
                              communicator.Writer(instruments_.segment).followed_launches());
}

uint64_t Tracker::ShowCall(uint64_t context, const CallEvent& event, uint64_t ticket) {
  // One that is not known has been counted. It has no range, and so gets no ticket for an end.
  const Communicator& communicator = communicators_.At(context);
  if (context == 0 || communicator.context.acquire() != context) return 0;
  const uint64_t bytes = event.count * instruments_.names.Find(event.datatype).element_bytes;
  instruments_.ranges.PushCall(event.func, bytes, *communicator.record);
  if (ticket != 0) return ticket;
  return Ticket::Pack(instruments_.process_tag, TicketKind::kShown, 0, 0, 0, communicator.index);
}

void Tracker::CountCall(const Communicator& communicator, uint64_t key, uint64_t bytes) {
  LaneWriter lane = communicator.ClaimLane(instruments_.segment, LaneRole::kLaunch);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  CountUncounted(communicator.parts.load()->uncounted, lane);
  AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kApi)], 1);
  lane.Count(key, 1, bytes);
}

void Tracker::StopLaunch(uint64_t ticket) {
  Communicator& communicator = communicators_.At(ticket);
  const uint64_t context = communicator.context.acquire();  // sees the events
  if (__builtin_expect(context == 0 || Ticket::Generation(context) != Ticket::Generation(ticket),
                       0)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  CommunicatorParts& parts = *communicator.parts.load();
  const uint64_t made_ns = parts.launches.Stop(instruments_, communicator, ticket);
  if (__builtin_expect(made_ns == 0, 0)) return;
  parts.last_calls.NoteLaunch(made_ns,
                              communicator.Writer(instruments_.segment).followed_launches());
}

}  // namespace nccl_pulse
