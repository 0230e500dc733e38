// The callbacks that begin the events of an eager operation. Inline, so that an adapter's function for
// each of them reads the descriptor itself: handing it on in memory and one call more would be a tenth
// of the callback.
//
// Thread, cost, errors: as Tracker.
#ifndef PLUGIN_TRACKER_EAGER_CALLBACKS_H_
#define PLUGIN_TRACKER_EAGER_CALLBACKS_H_

#include "plugin/tracker/counting.h"
#include "plugin/tracker/settling.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

inline uint64_t Tracker::StartGroup(uint64_t context, bool captured, bool is_one_call) {
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

inline uint64_t Tracker::StartCall(uint64_t context, const CallEvent& event) {
  const uint64_t ticket = BeginCall(context, event, 0);
  if (__builtin_expect(!instruments_.shows_ranges, 1)) return ticket;
  return ShowCall(context, event, ticket);
}

inline uint64_t Tracker::StartTaggedCall(uint64_t context, const CallEvent& event,
                                         uint64_t user_tag) {
  const uint64_t ticket = BeginCall(context, event, instruments_.user_tags.IdOf(user_tag));
  if (__builtin_expect(!instruments_.shows_ranges, 1)) return ticket;
  return ShowCall(context, event, ticket);
}

inline uint64_t Tracker::StartLaunch(uint64_t context, const LaunchEvent& event) {
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

inline uint64_t Tracker::StartOperation(uint64_t context, const OperationEvent& event) {
  Communicator* const found = communicators_.Find(context);
  if (__builtin_expect(found == nullptr, 0)) return 0;
  Communicator& communicator = *found;
  CommunicatorParts& parts = *communicator.parts.load();
  // Before a lane is claimed: a tool takes its time.
  if (__builtin_expect(instruments_.shows_ranges, 0)) MarkOperation(communicator, event);
  const uint64_t now_ns = instruments_.clock.NowNs();
  LaneWriter writer = communicator.ClaimLane(instruments_.segment, LaneRole::kLaunch);
  if (__builtin_expect(!writer.ok(), 0)) {
    Ignore(IgnoredReason::kNoRoom);
    return 0;
  }
  CountUncounted(parts.uncounted, writer);
  NameCache& names = instruments_.names;
  const CachedName op = names.Find(event.func);
  const CachedName datatype = names.Find(event.datatype);
  const uint64_t bytes = event.count * datatype.element_bytes;
  const auto size_class = static_cast<uint32_t>(SizeClassOf(bytes));
  if (__builtin_expect(event.counts_as_call, 0)) {
    if (!communicator.identity_known.load()) LearnIdentity(communicator, event);
    writer.Count(SeriesKey::Calls(op.id, size_class, datatype.id, false), 1, bytes);
    NoteUnlaunched(parts.last_calls, op.id, datatype.id, bytes, now_ns);
  }

  UntimedReason untimed = SeriesKey::kTimed;  // or not known yet
  if (__builtin_expect(!instruments_.times_kernels(), 1)) {
    untimed = static_cast<UntimedReason>(
        parts.launches.FateOf(instruments_, communicator, op.id, bytes, event.parent));
  } else if (!event.is_collective && event.peer == event.rank) {
    // The device counts a send to oneself, but the host does not. From here on NCCL attributes this
    // communicator's GPU times to the wrong operations (docs/nccl-profiler-api.md#kernel-channels).
    communicator.Writer(instruments_.segment).Distrust(TrustState::kSelfSend);
    untimed = UntimedReason::kInvisible;
  }
  if (__builtin_expect(event.is_collective, 1)) {
    writer.CountSequenced(
        SeriesKey::Algorithm(op.id, untimed, names.Find(event.algo).id, names.Find(event.proto).id),
        event.sequence + 1);
  } else if (untimed != SeriesKey::kTimed) {
    CountUntimed(writer, op.id, untimed);
  }

  uint64_t handle = 0;
  if (__builtin_expect(instruments_.timing != TimingMode::kOff, 1)) {
    // More channels than exist means: not set (NCCL 2.28 and later towards a plugin of API v4).
    const uint8_t channels = event.channels <= kMaxChannels ? event.channels : 0;
    const OperationMeta meta{op.id, static_cast<uint8_t>(size_class), channels,
                             !instruments_.times_kernels() || untimed != SeriesKey::kTimed,
                             static_cast<uint32_t>(event.sequence)};
    const bool captured = __builtin_expect(event.parent != 0, 0) &&
                          instruments_.IsOwn(event.parent, TicketKind::kApiCall) &&
                          Ticket::Child(event.parent) != 0;
    handle = parts.ring.Claim(
        communicator.first_ticket, instruments_.times_kernels(),
        {meta.Pack(), bytes, now_ns, captured}, [&](uint32_t place, uint64_t* claimed) {
          return ClaimUsedPlace(instruments_, communicator, place, writer, claimed);
        });
    if (__builtin_expect(handle == 0, 0)) {
      Ignore(IgnoredReason::kNoRoom);
      if (!meta.untimed) CountUntimed(writer, op.id, UntimedReason::kLost);
    }
  }
  // An operation is enqueued microseconds after its launch, so one reading of the clock serves
  // both.
  Lane& lane = writer.lane();
  lane.last_launch_ns.store(now_ns);
  const uint64_t count = AddToCell(lane.callbacks[static_cast<int>(CallbackKind::kOperation)], 1);
  if (__builtin_expect(count % kMeasuredOperations == 0, 0)) CountCost(now_ns);
  return handle;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_EAGER_CALLBACKS_H_
