// Tracker, the part for operations and their children: Coll and P2p, ProxyOp, KernelCh.
#include <algorithm>

#include "plugin/tracker/counting.h"
#include "plugin/tracker/settling.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {
namespace {

// Returns the ticket of an operation's child, with the process and communicator of the parent's
// ticket.
uint64_t ChildTicket(const Instruments& instruments, const OperationRef& ref, TicketKind kind,
                     uint32_t child) {
  return Ticket::Pack(instruments.process_tag, kind, child, ref.generation, ref.place,
                      ref.communicator->index);
}

KernelChannels::Channel ChannelOf(uint64_t ticket) {
  return {Ticket::Operation(ticket), Ticket::Generation(ticket), Ticket::Child(ticket)};
}

}  // namespace

void Tracker::NoteUnlaunched(LastCalls& last_calls, LastCallFields call, uint64_t now_ns) const {
  call.flags =
      instruments_.IsCollective(static_cast<NameId>(call.op)) ? LastCallBits::kCollective : 0;
  last_calls.Note(call, 0);
  last_calls.NoteLaunch(now_ns, 0);
}

void Tracker::LearnOperation(CommunicatorParts& parts, const OperationEvent& event,
                             UntimedReason fate, uint64_t key, LaneWriter& writer) {
  // The fast path only counts. That is not enough for an operation with timed channels, or of a
  // timed group.
  if (event.counts_as_call || event.parent != 0 || !instruments_.samples() ||
      fate == UntimedReason::kGrouped) {
    return;
  }
  // Not cached: a name that is just being entered into the table gets its own id next time.
  if (SeriesKey::Op(key) == kOtherName || SeriesKey::AlgorithmOf(key) == kOtherName ||
      SeriesKey::Protocol(key) == kOtherName) {
    return;
  }
  const auto launch_fate = static_cast<uint8_t>(fate);
  OperationKind& kind = parts.operation_kinds.SlotOf(event);
  if (kind.Is(event, launch_fate)) return;
  // A kind without a series of its own has no cells, and is not cached.
  kind.Learn(event, launch_fate, SeriesKey::Op(key), writer.CellsOfLaunches(key));
}

void Tracker::NotePeer(const Communicator& communicator, NameId op, const char* datatype,
                       uint64_t count, int rank, int32_t peer) {
  CommunicatorParts& parts = *communicator.parts.load();
  parts.last_calls.NotePeer(op, peer, groups_.Current(), parts.peer_cursor);
  // NCCL reports a Send to the rank itself only if it isn't in place.
  if (peer < 0 || peer == rank) return;
  const CachedName type = instruments_.names.Find(datatype);
  communicator.record->peer_calls.Add(PeerCalls::Whom(peer, op == kReceiveName),
                                      count * type.element_bytes, type.id);
}

void Tracker::CountCost(uint64_t begin_ns) {
  HeaderWriter(instruments_.segment).CountCost(1, instruments_.clock.NowNs() - begin_ns);
}

void Tracker::LearnIdentity(Communicator& communicator, const OperationEvent& event) {
  if (event.comm_hash == 0) return;
  bool expected = false;
  // Only one thread copies. The record's own atomics publish the identity to readers.
  if (!communicator.identity_known.replace(expected, true)) return;
  communicator.rank.store(event.rank);
  communicator.Writer(instruments_.segment).Learn(event.comm_hash, event.comm_name, event.rank);
}

void Tracker::StopOperation(const OperationRef& ref) {
  bool is_open;
  if (const Refusal refusal = ref.slot().StopEnqueue(ref.generation, &is_open)) {
    return Ignore(*refusal);
  }
  // An operation may be settled before this stop, because a small one may end on the GPU first.
  // Only a stop after finalize counts as ignored, unless the place already has a new owner.
  if (!is_open && ref.communicator->context.load() == 0) Ignore(IgnoredReason::kAfterClose);
}

// ---- ProxyOp ------------------------------------------------------------------------------------

uint64_t Tracker::StartProxyOp(uint64_t context, const ProxyOpEvent& event) {
  // Checked first: another process' context and parent are valid only in that process.
  if (event.pid != instruments_.pid) {
    Ignore(IgnoredReason::kForeignProcess);
    return 0;
  }
  Communicator& communicator = communicators_.At(context);
  if (communicator.context.load() == context) communicator.handles.SeeChild();
  if (event.parent == 0) return 0;  // an operation that was not tracked
  if (communicators_.Find(context) == nullptr) return 0;
  const OperationRef ref = communicators_.FindOperation(event.parent, TicketKind::kOperation);
  if (ref.communicator == nullptr) {
    Ignore(IgnoredReason::kForeignHandle);
    return 0;
  }
  uint32_t number = 0;  // set unless refused; initialized for the compiler
  if (const Refusal refusal = ref.slot().StartProxy(ref.generation, &number)) {
    Ignore(*refusal);
    return 0;
  }
  return ChildTicket(instruments_, ref, TicketKind::kProxyOp, std::min(number, Ticket::kMaxChild));
}

void Tracker::StopProxyOp(const OperationRef& ref) {
  const uint64_t now_ns = instruments_.clock.NowNs();
  if (const Refusal refusal = ref.slot().StopProxy(ref.generation, ref.child, now_ns)) {
    return Ignore(*refusal);
  }
  // Only the network transport stops its ProxyOps (docs/nccl-profiler-api.md#network). Loading
  // before storing keeps the cache line shared.
  if (!network_seen_.load()) network_seen_.store(true);
}

// ---- KernelCh -----------------------------------------------------------------------------------

uint64_t Tracker::StartKernelChannel(uint64_t context, const KernelChannelEvent& event) {
  if (!instruments_.times_kernels()) {
    Ignore(IgnoredReason::kUnrequestedType);
    return 0;
  }
  if (event.parent == 0) return 0;  // an operation that was not tracked
  const OperationRef ref = communicators_.FindOperation(event.parent, TicketKind::kOperation);
  if (ref.communicator == nullptr || event.channel >= kMaxChannels) {
    Ignore(ref.communicator == nullptr ? IgnoredReason::kForeignHandle : IgnoredReason::kNoRoom);
    return 0;
  }
  if (ref.communicator->context.acquire() != context) {
    communicators_.Find(context);  // counts the reason
    return 0;
  }
  const Refusal refusal = ref.parts->channels->Start({ref.place, ref.generation, event.channel},
                                                     event.gpu_ns, ref.slot());
  if (refusal) {
    Ignore(*refusal);
    return 0;
  }
  return ChildTicket(instruments_, ref, TicketKind::kKernelChannel, event.channel);
}

void Tracker::RecordKernelStop(uint64_t bits, const uint64_t* gpu_ns) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  if (Ticket::Issuer(bits) != instruments_.channel_issuer) {
    return Ignore(IgnoredReason::kForeignHandle);
  }
  CommunicatorParts* const parts = communicators_.FindChannel(bits);
  if (parts == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  if (gpu_ns == nullptr) return Ignore(IgnoredReason::kMissingArgument);
  const KernelChannels::Channel channel = ChannelOf(bits);
  const Refusal refusal =
      parts->channels->RecordStop(channel, *gpu_ns, parts->ring.slot(channel.place));
  if (refusal) Ignore(*refusal);
}

void Tracker::StopKernelChannel(uint64_t bits) {
  CommunicatorParts* const parts = communicators_.FindChannel(bits);
  if (parts == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  const KernelChannels::Channel channel = ChannelOf(bits);
  bool all_stopped = false;
  const Refusal refusal =
      parts->channels->Stop(channel, parts->ring.slot(channel.place), &all_stopped);
  if (refusal) return Ignore(*refusal);
  if (all_stopped) {
    FinishKernel(communicators_.FindOperation(bits, TicketKind::kKernelChannel));
  }
}

void Tracker::FinishKernel(const OperationRef& ref) {
  Communicator& communicator = *ref.communicator;
  const uint64_t now_ns = instruments_.clock.NowNs();
  LaneWriter lane = communicator.ClaimLane(instruments_.segment, LaneRole::kProgress);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  OperationState state;
  bool ends_it;
  if (const Refusal refusal = ref.slot().FinishKernel(ref.generation, &state, &ends_it)) {
    return Ignore(*refusal);
  }
  // Three callbacks for each channel: start, state and stop.
  lane.lane().callbacks[static_cast<int>(CallbackKind::kKernel)].publish_sum(
      uint64_t{3} * ref.parts->channels->ChannelsOf(ref.place));
  if (!state.meta.untimed) {
    CountKernelTime(instruments_, communicator, ref.place, state, now_ns, lane);
  }
  if (!ends_it) return;
  const uint64_t duration_ns = now_ns > state.enqueue_ns ? now_ns - state.enqueue_ns : 0;
  CountLatency(instruments_.segment, communicator, lane,
               {LatencyKind::kCompletionKernel, state.meta, state.bytes,
                BusBytesOf(communicator, state.meta.op, state.bytes), duration_ns, now_ns});
}

}  // namespace nccl_pulse
