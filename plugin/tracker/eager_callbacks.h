// Start callbacks of eager (uncaptured) operations, as inline functions of Tracker.
//
// Inline, so that each adapter reads NCCL's descriptor in place. Copying the descriptor and
// making one more call would add about 10 % to the callback.
//
// Thread, cost, errors: as Tracker.
#ifndef PLUGIN_TRACKER_EAGER_CALLBACKS_H_
#define PLUGIN_TRACKER_EAGER_CALLBACKS_H_

#include "plugin/tracker/counting.h"
#include "plugin/tracker/settling.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

inline uint64_t Tracker::StartGroup(uint64_t context, bool captured, bool is_one_call) {
  // Needed also for an unknown communicator: calls of other communicators may follow in the group.
  groups_.Begin(is_one_call);
  Communicator* communicator = communicators_.Find(context);
  if (communicator == nullptr) return 0;
  if (__builtin_expect(captured, 0)) {
    return Ticket::Pack(instruments_.process_tag, TicketKind::kGroup, 1, 0, 0, communicator->index);
  }
  if (__builtin_expect(communicator->awaited_ends.Take(), 0)) {
    return Ticket::Pack(instruments_.process_tag, TicketKind::kGroup, 0,
                        Ticket::Generation(context), is_one_call ? 1 : 0, communicator->index);
  }
  // Launches need nothing from this group. Without a ticket NCCL makes three callbacks fewer.
  return 0;
}

inline bool Tracker::StartUsualGroup(uint64_t context, bool captured, bool is_one_call) {
  const Communicator& communicator = communicators_.At(context);
  // Acquire: as CommunicatorTable::Find.
  if (__builtin_expect(communicator.context.acquire() != context, 0) ||
      __builtin_expect(context == 0, 0) || __builtin_expect(captured, 0) ||
      __builtin_expect(communicator.awaited_ends.are_awaited(), 0)) {
    return false;
  }
  return groups_.BeginAtFirst(is_one_call);
}

inline bool Tracker::CountUsualCall(uint64_t context, const CallEvent& event) {
  if (__builtin_expect(event.captured, 0) || __builtin_expect(event.parent != 0, 0)) return false;
  Communicator& communicator = communicators_.At(context);
  // Acquire: as CommunicatorTable::Find.
  if (__builtin_expect(communicator.context.acquire() != context, 0)) return false;
  if (__builtin_expect(context == 0, 0)) return false;
  CommunicatorParts& parts = *communicator.parts.load();
  LaunchFollower& launches = parts.launches;
  const uint64_t group = groups_.CurrentAtFirst();
  if (__builtin_expect(group == 0, 0) || __builtin_expect(launches.has_calls(), 0) ||
      __builtin_expect(parts.last_calls.IsOfGroup(group), 0) ||
      __builtin_expect(parts.last_calls.ends_chunk(), 0)) {
    return false;
  }
  const CallKind& kind = parts.call_kinds.SlotOf(event);
  if (__builtin_expect(!kind.Is(event), 0)) return false;
  CounterPair* const cells = kind.cells.load();
  if (__builtin_expect(cells == nullptr, 0)) return false;
  Relaxed<uint32_t>& call_number = launches.CallNumber(CallKind::NumberIndex(kind.bits.load()));
  const uint64_t number = call_number.load();
  if (instruments_.samples() &&
      __builtin_expect(instruments_.sampler.MayTime(kind.sampling_seed.load(), number), 0)) {
    return false;  // StartCall decides: the first calls of a kind are not timed
  }
  const Visit::Stay stay(parts.calling);
  if (__builtin_expect(communicator.context.load() != context, 0)) return false;
  const uint64_t bytes = kind.bytes.load();
  const uint64_t meta = kind.meta.load();
  CommunicatorRecord& record = *communicator.record;
  CountWithoutClaim(*cells, bytes, record);
  RecordWriter(instruments_.segment, record).NoteCall(meta);
  uint64_t what = CallKind::What(kind.bits.load());
  if (__builtin_expect(instruments_.stream_timer != nullptr, 1)) {
    call_number.add(1);
    what |= number << 32;
    launches.NoteUsualCall(number << 32 | meta, bytes, group);
  }
  what |= LastCallBits::RootOrPeer(event.root);
  parts.last_calls.NoteUsual(what, LastCallBits::BytesWithin(bytes, event.stream), group);
  return true;
}

inline bool Tracker::StartUsualLaunch(uint64_t context, const LaunchEvent& event,
                                      uint64_t* ticket) {
  if (__builtin_expect(event.parent != 0, 0)) return false;
  Communicator& communicator = communicators_.At(context);
  // Acquire: as CommunicatorTable::Find.
  if (__builtin_expect(communicator.context.acquire() != context, 0)) return false;
  if (__builtin_expect(context == 0, 0)) return false;
  return communicator.parts.load()->launches.StartUsual(
      instruments_, communicator, event.stream, context,
      [&](uint64_t* now_ns) { return instruments_.clock.ReadNow(now_ns); }, ticket);
}

inline uint64_t Tracker::StartLaunch(uint64_t context, const LaunchEvent& event) {
  Communicator* communicator = communicators_.Find(context);
  if (communicator == nullptr) return 0;
  CommunicatorParts& parts = *communicator->parts.load();
  const Visit::Stay stay(parts.launching);
  if (__builtin_expect(communicator->context.load() != context, 0))
    return 0;  // finalized meanwhile
  const bool captured = IsCalledIntoGraph(*communicator, event.parent);
  work_.NoteLaunch(*communicator, captured);
  LaunchFollower& launches = parts.launches;
  // A launch that CUDA events follow is counted by its stop, when it has been made.
  if (__builtin_expect(!captured && launches.is_followed(), 1)) {
    if (__builtin_expect(!launches.knows_thread(), 0)) launches.LearnThread(groups_.Current());
    // The fast path for clocks that only a function call can read; StartUsualLaunch refuses them.
    const auto now = [&](uint64_t* now_ns) {
      *now_ns = instruments_.clock.NowNs();
      return true;
    };
    uint64_t ticket;
    if (event.parent == 0 &&
        launches.StartUsual(instruments_, *communicator, event.stream, context, now, &ticket)) {
      return ticket;
    }
    return launches.Start(instruments_, *communicator, event.stream, context);
  }
  launches.CountUnfollowed(instruments_, *communicator, captured);
  return captured && graphs_.is_on() ? graphs_.StartLaunch(*communicator, event, context) : 0;
}

inline void Tracker::EndHurriedLaunch(const Communicator& communicator, CommunicatorParts& parts) {
  RecordWriter record = communicator.Writer(instruments_.segment);
  const uint64_t began_ns = parts.launches.EndHurried(record);
  parts.last_calls.NoteLaunch(began_ns, record.followed_launches());
}

inline bool Tracker::CountUsualOperation(uint64_t context, const OperationEvent& event,
                                         bool is_measured) {
  if (__builtin_expect(event.parent != 0, 0)) return false;  // its call is sampled, or captured
  Communicator& communicator = communicators_.At(context);
  // Acquire: as CommunicatorTable::Find.
  if (__builtin_expect(communicator.context.acquire() != context, 0)) return false;
  if (__builtin_expect(context == 0, 0)) return false;
  CommunicatorParts& parts = *communicator.parts.load();
  const Visit::Stay stay(parts.reporting);
  if (__builtin_expect(communicator.context.load() != context, 0)) return false;
  // A hurried launch (launch_follower.h) has no stop and ends with the report of its operation. Its
  // operation never needs a handle. If launches have no events, operations need handles, because
  // they show what is in flight (InflightOperations).
  if (__builtin_expect(parts.launches.is_hurried(), 1)) {
    EndHurriedLaunch(communicator, parts);
  } else if (communicator.handles.are_given() || !parts.launches.is_followed()) {
    return false;
  }
  const OperationKind& kind = parts.operation_kinds.SlotOf(event);
  if (__builtin_expect(!kind.Is(event, parts.launches.last_fate()), 0) ||
      __builtin_expect(IsMeasured(parts.ring.reported()) != is_measured, 0)) {
    return false;
  }
  CountOperation(communicator, parts, kind, event);
  parts.ring.PassOver();
  return true;
}

inline void Tracker::CountOperation(const Communicator& communicator, CommunicatorParts& parts,
                                    const OperationKind& kind, const OperationEvent& event) {
  CounterPair& cells = *kind.cells.load();
  // As LaneWriter::CountSequenced and Count.
  if (event.is_collective) {
    cells.b.store(event.sequence + 1);
  } else {
    NotePeer(communicator, static_cast<NameId>(kind.op.load()), event.datatype, event.count,
             event.rank, event.root_or_peer);
  }
  cells.a.publish_sum(1);
  FollowedLaunches& followed = communicator.record->followed;
  WorkFollower::NoteOperation(parts, followed.launches.load(), event, false);
  followed.callbacks_of(CallbackKind::kOperation).publish_sum(1);
}

inline bool Tracker::StartKnownOperation(Communicator& communicator, uint64_t context,
                                         const OperationEvent& event, uint64_t now_ns,
                                         uint64_t* handle) {
  CommunicatorParts& parts = *communicator.parts.load();
  const OperationKind& kind = parts.operation_kinds.SlotOf(event);
  if (event.parent != 0 || instruments_.has_captured.load() ||
      !kind.Is(event, parts.launches.last_fate())) {
    return false;
  }
  const Visit::Stay stay(parts.reporting);
  if (communicator.context.load() != context) return false;
  // `now_ns` also counts as the time of the launch, which is unknown if it has no events.
  CountOperation(communicator, parts, kind, event);
  communicator.record->lanes[static_cast<int>(LaneRole::kLaunch)].last_launch_ns.store(now_ns);
  const uint64_t bytes = event.count * instruments_.names.Find(event.datatype).element_bytes;
  const OperationMeta meta{kind.op.load(), static_cast<uint8_t>(SizeClassOf(bytes)),
                           ChannelsOf(event), true, static_cast<uint32_t>(event.sequence)};
  *handle = parts.ring.Claim(
      parts.ring.TakeNumberAlone(), communicator.first_ticket, false,
      {meta.Pack(), bytes, now_ns, false}, [&](uint32_t place, uint64_t* claimed) {
        LaneWriter lane = communicator.ClaimLane(instruments_.segment, LaneRole::kOther);
        return lane.ok() && ClaimUsedSlot(instruments_, communicator, place, lane, claimed);
      });
  communicator.handles.Note();
  if (__builtin_expect(*handle == 0, 0)) Ignore(IgnoredReason::kNoRoom);
  return true;
}

inline uint64_t Tracker::ClaimOperation(Communicator& communicator, const OperationMeta& meta,
                                        const NewOperation& operation, LaneWriter& writer) {
  OperationRing& ring = communicator.parts.load()->ring;
  const uint64_t handle =
      ring.Claim(ring.TakeNumber(), communicator.first_ticket, instruments_.times_kernels(),
                 operation, [&](uint32_t place, uint64_t* claimed) {
                   return ClaimUsedSlot(instruments_, communicator, place, writer, claimed);
                 });
  communicator.handles.Note();
  if (__builtin_expect(handle == 0, 0)) {
    Ignore(IgnoredReason::kNoRoom);
    if (!meta.untimed) CountUntimed(writer, meta.op, UntimedReason::kLost);
  }
  return handle;
}

inline uint64_t Tracker::StartOperation(uint64_t context, const OperationEvent& event) {
  Communicator* const found = communicators_.Find(context);
  if (__builtin_expect(found == nullptr, 0)) return 0;
  Communicator& communicator = *found;
  CommunicatorParts& parts = *communicator.parts.load();
  const uint64_t now_ns = instruments_.clock.NowNs();
  const bool is_measured = IsMeasured(parts.ring.reported());
  if (__builtin_expect(is_measured, 0) && CountUsualOperation(context, event, true)) {
    CountCost(now_ns);
    return 0;
  }
  uint64_t handle = 0;
  if (StartKnownOperation(communicator, context, event, now_ns, &handle)) {
    if (__builtin_expect(is_measured, 0)) CountCost(now_ns);
    return handle;
  }
  if (!event.is_collective) {  // also if no lane is free: the numbers must stay right
    const Visit::Stay stay(parts.reporting);
    if (communicator.context.load() == context) {
      NotePeer(communicator, instruments_.names.Find(event.func).id, event.datatype, event.count,
               event.rank, event.root_or_peer);
    }
  }
  LaneWriter writer = communicator.ClaimLane(instruments_.segment, LaneRole::kOther);
  if (__builtin_expect(!writer.ok(), 0)) {
    Ignore(IgnoredReason::kNoRoom);
    return 0;
  }
  NameCache& names = instruments_.names;
  const CachedName op = names.Find(event.func);
  const CachedName datatype = names.Find(event.datatype);
  const uint64_t bytes = event.count * datatype.element_bytes;
  const auto size_class = static_cast<uint32_t>(SizeClassOf(bytes));
  if (__builtin_expect(event.counts_as_call, 0)) {
    if (!communicator.identity_known.load()) LearnIdentity(communicator, event);
    writer.Count(SeriesKey::Calls(op.id, size_class, datatype.id, false), 1, bytes);
    LastCallFields call{};
    call.op = op.id;
    call.datatype = datatype.id;
    call.bytes = bytes;
    call.root_or_peer = event.root_or_peer;
    NoteUnlaunched(parts.last_calls, call, now_ns);
  }

  UntimedReason untimed = SeriesKey::kTimed;  // also while it is not known yet
  if (__builtin_expect(!instruments_.times_kernels(), 1)) {
    untimed = static_cast<UntimedReason>(
        parts.launches.FateOf(instruments_, communicator, op.id, bytes, event.parent));
  } else if (!event.is_collective && event.root_or_peer == event.rank) {
    // The device counts a send to oneself, but the host does not. From here on NCCL attributes this
    // communicator's GPU times to the wrong operations (docs/nccl-profiler-api.md#kernel-channels).
    communicator.Writer(instruments_.segment).Distrust(TrustState::kSelfSend);
    untimed = UntimedReason::kInvisible;
  }
  uint64_t key = 0;
  if (__builtin_expect(event.is_collective, 1)) {
    key =
        SeriesKey::Algorithm(op.id, untimed, names.Find(event.algo).id, names.Find(event.proto).id);
    writer.CountSequenced(key, event.sequence + 1);
  } else if (untimed != SeriesKey::kTimed) {
    key = SeriesKey::Untimed(op.id, untimed);
    writer.Count(key, 1, 0);
  }
  LearnOperation(parts, event, untimed, key, writer);

  if (__builtin_expect(instruments_.timing != TimingMode::kOff, 1)) {
    const OperationMeta meta{op.id, static_cast<uint8_t>(size_class), ChannelsOf(event),
                             !instruments_.times_kernels() || untimed != SeriesKey::kTimed,
                             static_cast<uint32_t>(event.sequence)};
    handle = ClaimOperation(communicator, meta,
                            {meta.Pack(), bytes, now_ns, IsOfCapturedCall(event.parent)}, writer);
  } else {
    parts.ring.TakeNumber();
  }
  // Must come before later operations of this kind, which may take the fast path.
  if (event.proto == kSymmetricProtocol) WorkFollower::NoteUncounted(parts);
  WorkFollower::NoteOperation(parts, communicator.record->followed.launches.load(), event,
                              IsOfCapturedCall(event.parent));
  // NCCL enqueues an operation microseconds after its launch, so one clock read serves both.
  Lane& lane = writer.lane();
  lane.last_launch_ns.store(now_ns);
  lane.callbacks[static_cast<int>(CallbackKind::kOperation)].publish_sum(1);
  if (__builtin_expect(is_measured, 0)) CountCost(now_ns);
  return handle;
}

inline bool Tracker::StartUsualChannel(uint64_t context, const KernelChannelEvent& event,
                                       uint64_t* ticket) {
  const Communicator& communicator = communicators_.At(context);
  // Acquire: as CommunicatorTable::Find.
  if (__builtin_expect(communicator.context.acquire() != context, 0) ||
      __builtin_expect(context == 0, 0)) {
    return false;
  }
  // The parent must be an operation of this communicator: all their tickets share first_ticket.
  if (__builtin_expect(!Ticket::IsOfOperation(event.parent, communicator.first_ticket), 0)) {
    return false;
  }
  CommunicatorParts& parts = *communicator.parts.load();
  const KernelChannels::Channel channel{Ticket::Operation(event.parent),
                                        Ticket::Generation(event.parent), event.channel};
  if (__builtin_expect(parts.channels == nullptr, 0) ||
      __builtin_expect(channel.place >= kOperationSlots, 0) ||
      __builtin_expect(channel.number >= kMaxChannels, 0) ||
      __builtin_expect(
          !parts.channels->StartNext(channel, event.gpu_ns, parts.ring.slot(channel.place)), 0)) {
    return false;
  }
  *ticket = Ticket::OfKernelChannel(event.parent, channel.number);
  return true;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_EAGER_CALLBACKS_H_
