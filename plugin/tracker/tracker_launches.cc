// Tracker, the part for calls and launches. It finds the communicator; LaunchFollower follows the
// launch.
#include "plugin/tracker/counting.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

uint64_t Tracker::StartGroup(uint64_t context, bool captured, bool is_one_call) {
  // Also of a communicator that is not known: others may follow in its group.
  groups_.Begin(is_one_call);
  Communicator* communicator = communicators_.Find(context);
  if (communicator == nullptr) return 0;
  uint64_t ticket = 0;
  if (__builtin_expect(captured, 0)) {
    ticket =
        Ticket::Pack(instruments_.process_tag, TicketKind::kGroup, 1, 0, 0, communicator->index);
  } else if (__builtin_expect(communicator->awaited_ends.Take(), 0)) {
    ticket = Ticket::Pack(instruments_.process_tag, TicketKind::kGroup, 0,
                          Ticket::Generation(context), is_one_call ? 1 : 0, communicator->index);
  }
  // Else there is nothing to tell its launches. Without a ticket NCCL makes three callbacks less.
  if (__builtin_expect(!instruments_.shows_ranges, 1)) return ticket;
  return ShowGroup(*communicator, ticket, is_one_call);
}

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

inline uint64_t Tracker::BeginCall(uint64_t context, const CallEvent& event, UserTagId user_tag) {
  Communicator* communicator = communicators_.Find(context);
  if (communicator == nullptr) return 0;
  const CachedName op = instruments_.names.Find(event.func);
  const CachedName datatype = instruments_.names.Find(event.datatype);
  const uint64_t bytes = event.count * datatype.element_bytes;
  const auto size_class = static_cast<uint32_t>(SizeClassOf(bytes));
  communicator->Writer(instruments_.segment).NoteCall(op.id, size_class);
  const uint64_t key = SeriesKey::WithTag(
      SeriesKey::Calls(op.id, size_class, datatype.id, event.captured), user_tag);
  CommunicatorParts& parts = *communicator->parts.load();
  if (__builtin_expect(!parts.uncounted.Offer(key, bytes), 0)) {
    CountCall(*communicator, key, bytes);
  }
  const uint64_t group = groups_.Current();
  LastCallFields last{};
  last.op = op.id;
  last.datatype = datatype.id;
  last.bytes = bytes;
  last.stream = event.stream;
  uint32_t serial = 0;
  if (__builtin_expect(instruments_.stream_timer != nullptr, 1)) {
    const OperationMeta call{op.id,
                             static_cast<uint8_t>(size_class),
                             0,
                             false,
                             parts.launches.NextCallNumber(op.id, size_class),
                             user_tag};
    last.kind_number = call.call_number;
    last.flags = LastCallBits::kKindNumbered;
    serial = parts.launches.NoteCall(instruments_, *communicator, parts.ring, call, bytes, group);
    // The end of its group is awaited, or it is captured.
    if (__builtin_expect(event.parent != 0, 0) && !event.captured &&
        Ticket::Kind(event.parent) == TicketKind::kGroup) {
      parts.launches.AwaitEnd(instruments_, *communicator, parts.ring, event.stream,
                              Ticket::Operation(event.parent) != 0);
    }
  }
  // Here, where they are used: each callback has more values than registers.
  last.flags |= (instruments_.IsCollective(op.id) ? LastCallBits::kCollective : 0) |
                (event.captured ? LastCallBits::kCaptured : 0);
  parts.last_calls.Note(last, group);
  if (__builtin_expect(event.captured, 0)) {
    parts.last_calls.ForgetLaunch();
    communicator->MarkCaptured(instruments_.segment);
    if (instruments_.stream_timer != nullptr) {
      parts.launches.ForgetCall(instruments_, *communicator, op.id, bytes, group);
    }
    if (graphs_.is_on()) {
      graphs_.NoteCall(*communicator, {event.stream, op.id, size_class, bytes});
    }
  }
  // The ticket tells the operation whether it was captured, and which launch may have timed it.
  if (__builtin_expect(!event.captured && serial == 0, 1)) return 0;
  return Ticket::Pack(instruments_.process_tag, TicketKind::kApiCall, event.captured ? 1 : 0,
                      serial, 0, communicator->index);
}

uint64_t Tracker::StartCall(uint64_t context, const CallEvent& event) {
  const uint64_t ticket = BeginCall(context, event, 0);
  if (__builtin_expect(!instruments_.shows_ranges, 1)) return ticket;
  return ShowCall(context, event, ticket);
}

uint64_t Tracker::StartTaggedCall(uint64_t context, const CallEvent& event, uint64_t user_tag) {
  const uint64_t ticket = BeginCall(context, event, instruments_.user_tags.IdOf(user_tag));
  if (__builtin_expect(!instruments_.shows_ranges, 1)) return ticket;
  return ShowCall(context, event, ticket);
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

uint64_t Tracker::StartLaunch(uint64_t context, const LaunchEvent& event) {
  Communicator* communicator = communicators_.Find(context);
  if (communicator == nullptr) return 0;
  const bool captured = IsCalledIntoGraph(*communicator, event.parent);
  LaunchFollower& launches = communicator->parts.load()->launches;
  // A followed one counts once it has been made.
  if (__builtin_expect(!captured && launches.IsFollowed(instruments_), 1)) {
    if (__builtin_expect(!launches.knows_thread(), 0)) launches.LearnThread(groups_.Current());
    return launches.Start(instruments_, *communicator, event.stream, context);
  }
  launches.CountUnfollowed(instruments_, *communicator, captured);
  return captured && graphs_.is_on() ? graphs_.StartLaunch(*communicator, event, context) : 0;
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
