// Tracker, the part that follows launches: what is called, what is launched, and which launches are
// timed on their stream (stream_timer.h).
#include <algorithm>

#include "plugin/bus_bytes.h"
#include "plugin/tracker.h"

namespace nccl_pulse {
namespace {

// A cell of PendingLaunch or TimedPair that has one writer at a time. Relaxed: see PendingLaunch.
void Add(std::atomic<uint64_t>& cell, uint64_t amount) {
  cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

uint64_t Tracker::StartGroup(uint64_t context, bool captured) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  // Nothing to tell its launches, and no stop to be called for.
  if (!captured && stream_timer_ == nullptr) return 0;
  // A number to tell one group's calls from the next one's. Relaxed, and no read-modify-write: see
  // PendingLaunch.
  std::atomic<uint32_t>& next = communicator->launching->next_group;
  const uint32_t number = next.load(std::memory_order_relaxed);
  next.store(number + 1, std::memory_order_relaxed);
  return Ticket::Pack(process_tag_, TicketKind::kGroup, captured ? 1 : 0,
                      number & Ticket::kGenerationMask, 0, communicator->index);
}

uint64_t Tracker::StartCall(uint64_t context, const CallEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  LaneWriter lane(segment_, *communicator->record,
                  communicator->record_generation.load(std::memory_order_relaxed),
                  LaneRole::kLaunch);
  if (!lane.ok()) {
    Ignore(IgnoredReason::kNoRoom);
    return 0;
  }
  const CachedName op = names_.Find(event.func);
  const CachedName datatype = names_.Find(event.datatype);
  const uint64_t bytes = event.count * datatype.element_bytes;
  AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kApi)], 1);
  lane.Count(SeriesKey::Pack(SeriesKind::kCalls, op.id, static_cast<uint32_t>(SizeClassOf(bytes)),
                             datatype.id, event.captured ? 1 : 0),
             1, bytes);
  uint32_t serial = 0;
  if (stream_timer_ != nullptr) serial = NoteCall(*communicator, op.id, bytes, event.parent);
  if (event.captured) communicator->record->captured.store(1, std::memory_order_relaxed);  // a flag
  // What it tells its operation: that it was captured, and which launch may have timed it.
  if (!event.captured && (serial == 0 || timing_ != TimingMode::kAuto)) return 0;
  return Ticket::Pack(process_tag_, TicketKind::kApiCall, event.captured ? 1 : 0, serial, 0,
                      communicator->index);
}

uint32_t Tracker::NoteCall(Communicator& communicator, NameId op, uint64_t bytes, uint64_t group) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  const int size_class = SizeClassOf(bytes);
  const int row =
      op >= kFirstNcclName ? std::min(op - kFirstNcclName, kCallRows - 1) : kCallRows - 1;
  std::atomic<uint32_t>& number = communicator.launching->call_numbers[row][size_class];
  const uint32_t call_number = number.load(std::memory_order_relaxed);
  number.store(call_number + 1, std::memory_order_relaxed);
  if (pending.group.load(std::memory_order_relaxed) != group) {
    // Calls of an earlier group that were never launched are not this group's.
    pending.group.store(group, std::memory_order_relaxed);
    pending.calls.store(0, std::memory_order_relaxed);
  }
  if (pending.calls.load(std::memory_order_relaxed) == 0) {
    pending.bytes.store(0, std::memory_order_relaxed);
    pending.bus_bytes.store(0, std::memory_order_relaxed);
  }
  Add(pending.calls, 1);
  Add(pending.bytes, bytes);
  Add(pending.bus_bytes, BusBytes(op, bytes, communicator.nranks.load(std::memory_order_relaxed)));
  const OperationMeta meta{op, static_cast<uint8_t>(size_class), 0, false, call_number};
  pending.meta.store(meta.Pack(), std::memory_order_relaxed);
  const uint32_t next =
      (pending.serial.load(std::memory_order_relaxed) + 1) & Ticket::kGenerationMask;
  const uint32_t serial = next != 0 ? next : 1;
  pending.serial.store(serial, std::memory_order_relaxed);
  return serial;
}

bool Tracker::ShouldTime(const Communicator& communicator, const OperationMeta& meta) const {
  return sampler_.ShouldTime(communicator.comm_id.load(std::memory_order_relaxed), meta.op,
                             meta.size_class, meta.call_number);
}

// Part of a graph: it is not launched now, and its replays will not be seen.
bool Tracker::IsCaptured(Communicator& communicator, const LaunchEvent& event) {
  const bool group_captured =
      Ticket::Issuer(event.parent) == Ticket::MakeIssuer(process_tag_, TicketKind::kGroup) &&
      Ticket::Child(event.parent) != 0;
  const bool captured =
      group_captured || (stream_timer_ != nullptr && communicator.launching->timer.is_on() &&
                         stream_timer_->IsCapturing(communicator.launching->timer, event.stream));
  if (captured) communicator.record->captured.store(1, std::memory_order_relaxed);  // a flag
  return captured;
}

uint64_t Tracker::StartLaunch(uint64_t context, const LaunchEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  const bool captured = IsCaptured(*communicator, event);
  const bool followed =
      !captured && stream_timer_ != nullptr && communicator->launching->timer.is_on();
  {
    LaneWriter lane(segment_, *communicator->record,
                    communicator->record_generation.load(std::memory_order_relaxed),
                    LaneRole::kLaunch);
    if (!lane.ok()) {
      Ignore(IgnoredReason::kNoRoom);
      return 0;
    }
    AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kLaunch)], 1);
    // One that is followed counts when it has been made.
    if (!captured && !followed) AddToCell(lane.lane().launches, 1);
  }
  if (followed) return BeginLaunch(*communicator, event, context);
  communicator->launching->pending.fate.store(static_cast<uint32_t>(LaunchFate::kNotTimed),
                                              std::memory_order_relaxed);  // see PendingLaunch
  return 0;
}

uint64_t Tracker::BeginLaunch(Communicator& communicator, const LaunchEvent& event,
                              uint64_t context) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  if (pending.open_launch.load(std::memory_order_relaxed) != 0) AbandonLaunch(communicator);
  const uint64_t calls = pending.group.load(std::memory_order_relaxed) == event.parent
                             ? pending.calls.load(std::memory_order_relaxed)
                             : 0;  // a further launch of a large group
  pending.calls.store(0, std::memory_order_relaxed);
  LaunchFate fate = LaunchFate::kNotTimed;
  uint32_t index = kNoPair;
  if (timing_ == TimingMode::kAuto) {
    TimedPair* pair = BeginTiming(communicator, event.stream, calls);
    if (pair != nullptr) index = static_cast<uint32_t>(pair - communicator.launching->timer.pairs);
    fate = pair == nullptr ? LaunchFate::kNotSampled
           : calls == 1    ? LaunchFate::kTimed
                           : LaunchFate::kGrouped;
  }
  pending.pair.store(index, std::memory_order_relaxed);
  pending.fate.store(static_cast<uint32_t>(fate), std::memory_order_relaxed);
  pending.stream.store(event.stream, std::memory_order_relaxed);
  const uint32_t number = pending.launch_number.load(std::memory_order_relaxed) + 1;
  pending.launch_number.store(number, std::memory_order_relaxed);
  const uint64_t ticket =
      Ticket::Pack(process_tag_, TicketKind::kLaunch, index, Ticket::Generation(context),
                   number & ((1u << Ticket::kOperationBits) - 1), communicator.index);
  pending.open_launch.store(ticket, std::memory_order_relaxed);
  return ticket;
}

TimedPair* Tracker::BeginTiming(Communicator& communicator, CudaStream stream, uint64_t calls) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  const uint64_t call_meta = pending.meta.load(std::memory_order_relaxed);
  const uint32_t serial = pending.serial.load(std::memory_order_relaxed);
  OperationMeta meta = OperationMeta::Unpack(call_meta);
  if (calls != 1) {
    // Point-to-point plans are cut differently on each rank: a count of their own, no agreement
    // claimed.
    const uint64_t number = pending.grouped_launches.load(std::memory_order_relaxed);
    pending.grouped_launches.store(number + 1, std::memory_order_relaxed);
    meta = {kGroupedName, 0, 0, false, static_cast<uint32_t>(number)};
  } else if (pending.reported_serial.load(std::memory_order_relaxed) == serial) {
    return nullptr;  // NCCL reported the operation before its launch: it is counted as untimed
  }
  if (!ShouldTime(communicator, meta) || !sampler_.Spend()) return nullptr;
  TimedPair* pair = stream_timer_->BeginTiming(communicator.launching->timer, stream);
  if (pair == nullptr) return nullptr;
  // Published when the pair is armed.
  pair->calls.store(static_cast<uint32_t>(calls), std::memory_order_relaxed);
  pair->call_meta.store(call_meta, std::memory_order_relaxed);
  // The first launch of a group that is cut into several stands for its calls, unless NCCL says
  // which operations it carries.
  pair->call_bytes.store(calls > 0 ? pending.bytes.load(std::memory_order_relaxed) : 0,
                         std::memory_order_relaxed);
  pair->call_bus_bytes.store(calls > 0 ? pending.bus_bytes.load(std::memory_order_relaxed) : 0,
                             std::memory_order_relaxed);
  if (calls == 1) pending.timed_serial.store(serial, std::memory_order_relaxed);
  return pair;
}

// A launch that was begun and never ended; NCCL has gone on to the next one.
void Tracker::AbandonLaunch(Communicator& communicator) {
  // Relaxed: see PendingLaunch; the pair is this side's own until it is armed.
  PendingLaunch& pending = communicator.launching->pending;
  const uint32_t index = Ticket::Child(pending.open_launch.load(std::memory_order_relaxed));
  if (index >= kTimedPairs) return;
  TimedPair& pair = communicator.launching->timer.pairs[index];
  const bool reported = pending.timed_serial.load(std::memory_order_relaxed) ==
                        pending.reported_serial.load(std::memory_order_relaxed);
  if (reported) CountLostLaunch(communicator, pair);
  pair.state.store(TimedPair::kFree, std::memory_order_relaxed);
}

void Tracker::StopLaunch(uint64_t ticket) {
  Communicator& communicator = slots_[Ticket::Communicator(ticket)];
  const uint64_t context = communicator.context.load(std::memory_order_acquire);  // sees the events
  if (context == 0 || Ticket::Generation(context) != Ticket::Generation(ticket)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  // Relaxed: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  if (pending.open_launch.load(std::memory_order_relaxed) != ticket) {
    return Ignore(IgnoredReason::kRepeatedStop);
  }
  pending.open_launch.store(0, std::memory_order_relaxed);
  const uint64_t now_ns = clock_.NowNs();
  {
    LaneWriter lane(segment_, *communicator.record,
                    communicator.record_generation.load(std::memory_order_relaxed),
                    LaneRole::kLaunch);
    if (lane.ok()) {
      // Before the events: never have more completed than were launched.
      AddToCell(lane.lane().launches, 1);
      lane.lane().last_launch_ns.store(now_ns, std::memory_order_relaxed);  // orders nothing
    } else {
      Ignore(IgnoredReason::kNoRoom);
    }
  }
  const uint32_t index = Ticket::Child(ticket);
  TimedPair* pair = index < kTimedPairs ? &communicator.launching->timer.pairs[index] : nullptr;
  const bool kept = stream_timer_->End(
      communicator.launching->timer, pending.stream.load(std::memory_order_relaxed), pair, now_ns);
  if (!kept) CountLostLaunch(communicator, *pair);
}

void Tracker::CountFate(Communicator& communicator, LaneWriter& lane, NameId op, uint64_t bytes,
                        uint64_t call) {
  // Relaxed: see PendingLaunch. An operation that NCCL reports from another thread (a CUDA host
  // callback) may be told the fate of another launch; only the reason is then wrong, for the one
  // that a launch times alone is known by its serial.
  PendingLaunch& pending = communicator.launching->pending;
  auto fate = static_cast<LaunchFate>(pending.fate.load(std::memory_order_relaxed));
  if (Ticket::Issuer(call) == Ticket::MakeIssuer(process_tag_, TicketKind::kApiCall)) {
    if (Ticket::Child(call) != 0) return CountUntimed(lane, op, UntimedReason::kCaptured);
    const uint32_t serial = Ticket::Generation(call);
    pending.reported_serial.store(serial, std::memory_order_relaxed);
    if (serial == pending.timed_serial.load(std::memory_order_relaxed)) return;  // or lost there
    if (fate == LaunchFate::kTimed) fate = LaunchFate::kNotSampled;
  }
  switch (fate) {
    case LaunchFate::kNotTimed:
      return CountUntimed(lane, op, UntimedReason::kNotTimed);
    case LaunchFate::kNotSampled:
      return CountUntimed(lane, op, UntimedReason::kNotSampled);
    case LaunchFate::kTimed:
      return;
    case LaunchFate::kGrouped:
      CountUntimed(lane, op, UntimedReason::kGrouped);
      break;
  }
  const uint32_t index = pending.pair.load(std::memory_order_relaxed);
  if (index >= kTimedPairs) return;
  TimedPair& pair = communicator.launching->timer.pairs[index];
  Add(pair.seen_bytes, bytes);
  Add(pair.seen_bus_bytes,
      BusBytes(op, bytes, communicator.nranks.load(std::memory_order_relaxed)));
  Add(pair.seen, 1);
}

}  // namespace nccl_pulse
