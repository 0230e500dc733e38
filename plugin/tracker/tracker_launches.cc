// Tracker, the part for calls and launches. It finds the communicator; LaunchFollower follows the
// launch.
#include "plugin/tracker/counting.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

void Tracker::StopGroup(uint64_t ticket) {
  if (Ticket::Child(ticket) != 0) return;  // its end is not awaited
  Communicator& communicator = communicators_.At(ticket);
  const uint64_t context = communicator.context.acquire();  // sees the events
  if (context == 0 || Ticket::Generation(ticket) != Ticket::Generation(context)) return;
  communicator.awaited_ends.End();
  CommunicatorParts& parts = *communicator.parts.load();
  const Visit::Stay stay(parts.calling);  // a group ends on the thread that calls
  if (communicator.context.load() != context || !parts.launches.is_followed()) return;
  const uint64_t made_ns = parts.launches.EndGroup(
      instruments_, communicator, parts.ring, groups_.Current(), Ticket::Operation(ticket) != 0);
  if (made_ns == 0) return;
  const uint64_t launches = communicator.Writer(instruments_.segment).followed_launches();
  parts.last_calls.NoteLaunch(made_ns, launches);
  WorkFollower::NoteUnreported(parts, launches);
}

uint64_t Tracker::StartCall(uint64_t context, const CallEvent& event) {
  Communicator* const communicator = communicators_.Find(context);
  if (communicator == nullptr) return 0;
  CommunicatorParts& parts = *communicator->parts.load();
  CallKind& kind = parts.call_kinds.SlotOf(event);
  if (!kind.Is(event)) LearnCall(*communicator, event, kind);
  const uint64_t bytes = kind.bytes.load();
  if (!CountCall(*communicator, context, event, kind)) CountCallInLane(*communicator, event, kind);
  const OperationMeta meta = OperationMeta::Unpack(kind.meta.load());
  communicator->Writer(instruments_.segment).NoteCall(meta.Pack());
  const uint64_t group = groups_.Current();
  uint64_t what = CallKind::What(kind.bits.load());
  uint32_t serial = 0;
  if (instruments_.stream_timer != nullptr) {
    Relaxed<uint32_t>& call_number =
        parts.launches.CallNumber(CallKind::NumberIndex(kind.bits.load()));
    const uint64_t number = uint64_t{call_number.load()} << 32;
    call_number.add(1);
    if (meta.op == kBroadcastName) WorkFollower::NoteBroadcast(parts, bytes);
    what |= number;
    serial = parts.launches.NoteCall(instruments_, *communicator, parts.ring, number | meta.Pack(),
                                     kind.sampling_seed.load(), bytes, group);
    // A group that is not captured has a ticket only if its end is awaited (StartGroup).
    if (event.parent != 0 && !event.captured && Ticket::Kind(event.parent) == TicketKind::kGroup) {
      const Visit::Stay stay(parts.calling);
      if (communicator->context.load() == context) {
        parts.launches.AwaitEnd(instruments_, *communicator, parts.ring, event.stream,
                                Ticket::Operation(event.parent) != 0);
      }
    }
  }
  if (event.captured) what |= LastCallBits::kCaptured << LastCallBits::kFlagsShift;
  what |= LastCallBits::RootOrPeer(event.root);
  parts.last_calls.Note(what, LastCallBits::Bytes(bytes, event.stream), group);
  if (event.captured) {
    parts.last_calls.ForgetLaunch();
    communicator->MarkCaptured(instruments_.segment);
    instruments_.has_captured.store(true);
    if (instruments_.stream_timer != nullptr) {
      parts.launches.ForgetCall(instruments_, *communicator, meta.op, bytes, group);
    }
    if (work_.is_on()) {
      work_.NoteCapturedCall(*communicator, meta.op, group);
    }
    if (graphs_.is_on()) {
      graphs_.NoteCall(*communicator, {event.stream, meta.op, meta.size_class, bytes});
    }
  }
  // The ticket tells the operation whether it was captured, and which launch may have timed it.
  if (!event.captured && serial == 0) return 0;
  return Ticket::Pack(instruments_.process_tag, TicketKind::kApiCall, event.captured ? 1 : 0,
                      serial, 0, communicator->index);
}

void Tracker::LearnCall(const Communicator& communicator, const CallEvent& event, CallKind& kind) {
  const CachedName op = instruments_.names.Find(event.func);
  const CachedName datatype = instruments_.names.Find(event.datatype);
  const uint64_t bytes = event.count * datatype.element_bytes;
  const auto size_class = static_cast<uint32_t>(SizeClassOf(bytes));
  const UserTagId user_tag = instruments_.user_tags.IdOf(event.user_tag);
  kind.Forget();
  kind.datatype.store(event.datatype);
  kind.count.store(event.count);
  kind.user_tag.store(event.user_tag);
  kind.bytes.store(bytes);
  const OperationMeta meta{op.id, static_cast<uint8_t>(size_class), 0, false, 0, user_tag};
  kind.meta.store(static_cast<uint32_t>(meta.Pack()));
  const uint32_t row = OperationRowOf(op.id);
  kind.sampling_seed.store(KindSeed(communicator.sampling_seed.load(), row, size_class));
  LastCallFields last{};
  last.op = op.id;
  last.datatype = datatype.id;
  last.flags = (instruments_.IsCollective(op.id) ? LastCallBits::kCollective : 0) |
               (instruments_.stream_timer != nullptr ? LastCallBits::kKindNumbered : 0);
  kind.SetWhat(LastCallBits::What(last), LaunchFollower::IndexOfNumber(row, size_class));
  kind.cells.store(nullptr);
  // Not cached: a name that is just being entered into the table gets its own id next time. A call
  // never has that many bytes, except by mistake.
  if (op.id == kOtherName || datatype.id == kOtherName || bytes > LastCallBits::kMostBytes) return;
  LaneWriter lane = communicator.ClaimLane(instruments_.segment, LaneRole::kOther);
  if (!lane.ok()) return;
  // StartCall notes every Broadcast that may be hidden, so these don't take the fast path.
  const bool may_hide = op.id == kBroadcastName && WorkFollower::MayHideBroadcasts(communicator);
  if (!may_hide) kind.cells.store(lane.CellsOfLaunches(kind.KeyOf(false)));
  kind.func.store(event.func);
}

bool Tracker::CountCall(const Communicator& communicator, uint64_t context, const CallEvent& event,
                        const CallKind& kind) {
  if (event.captured) return false;
  const Visit::Stay stay(communicator.parts.load()->calling);
  if (communicator.context.load() != context) return true;  // finalized meanwhile: not counted
  CounterPair* const cells = kind.cells.load();  // of this communicator, while the visit lasts
  if (cells == nullptr) return false;
  CountWithoutClaim(*cells, kind.bytes.load(), *communicator.record);
  return true;
}

void Tracker::CountCallInLane(const Communicator& communicator, const CallEvent& event,
                              const CallKind& kind) {
  LaneWriter lane = communicator.ClaimLane(instruments_.segment, LaneRole::kOther);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  lane.lane().callbacks[static_cast<int>(CallbackKind::kApi)].publish_sum(1);
  lane.Count(kind.KeyOf(event.captured), 1, kind.bytes.load());
}

void Tracker::StopLaunch(uint64_t ticket) {
  Communicator& communicator = communicators_.At(ticket);
  CommunicatorParts* const made = communicator.parts.acquire();  // null: a forged ticket
  if (__builtin_expect(made == nullptr, 0)) return Ignore(IgnoredReason::kStaleHandle);
  CommunicatorParts& parts = *made;
  const Visit::Stay stay(parts.launching);
  const uint64_t context = communicator.context.acquire();  // sees the events
  if (__builtin_expect(context == 0 || Ticket::Generation(context) != Ticket::Generation(ticket),
                       0)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  parts.launches.Stop(instruments_, communicator, ticket, [&](uint64_t made_ns) {
    parts.last_calls.NoteLaunch(made_ns,
                                communicator.Writer(instruments_.segment).followed_launches());
  });
}

}  // namespace nccl_pulse
