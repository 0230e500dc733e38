// Tracker, the part that follows launches: what is called, what is launched, and how long that took
// on the stream (stream_timer.h).
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
  // A number to tell one group's calls from the next one's. Relaxed: it carries nothing else.
  const uint32_t number = communicator->next_group.fetch_add(1, std::memory_order_relaxed);
  return Ticket::Pack(process_tag_, TicketKind::kGroup, captured ? 1 : 0,
                      number & Ticket::kGenerationMask, 0, communicator->index);
}

uint32_t Tracker::NoteCall(Communicator& communicator, NameId op, uint64_t bytes, uint64_t group) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.pending;
  const int size_class = SizeClassOf(bytes);
  const int row =
      op >= kFirstNcclName ? std::min(op - kFirstNcclName, kCallRows - 1) : kCallRows - 1;
  std::atomic<uint32_t>& number = communicator.call_numbers[row][size_class];
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
      group_captured || (stream_timer_ != nullptr && communicator.timer.is_on() &&
                         stream_timer_->IsCapturing(communicator.timer, event.stream));
  if (captured) communicator.record->captured.store(1, std::memory_order_relaxed);  // a flag
  return captured;
}

uint64_t Tracker::StartLaunch(uint64_t context, const LaunchEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  const bool captured = IsCaptured(*communicator, event);
  const bool followed = !captured && stream_timer_ != nullptr && communicator->timer.is_on();
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
  communicator->pending.fate.store(static_cast<uint32_t>(LaunchFate::kNotTimed),
                                   std::memory_order_relaxed);  // see PendingLaunch
  return 0;
}

uint64_t Tracker::BeginLaunch(Communicator& communicator, const LaunchEvent& event,
                              uint64_t context) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.pending;
  if (pending.open_launch.load(std::memory_order_relaxed) != 0) AbandonLaunch(communicator);
  const uint64_t calls = pending.group.load(std::memory_order_relaxed) == event.parent
                             ? pending.calls.load(std::memory_order_relaxed)
                             : 0;  // a further launch of a large group
  pending.calls.store(0, std::memory_order_relaxed);
  LaunchFate fate = LaunchFate::kNotTimed;
  uint32_t index = kNoPair;
  if (timing_ == TimingMode::kAuto) {
    TimedPair* pair = BeginTiming(communicator, event.stream, calls);
    if (pair != nullptr) index = static_cast<uint32_t>(pair - communicator.timer.pairs);
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
  PendingLaunch& pending = communicator.pending;
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
  TimedPair* pair = stream_timer_->BeginTiming(communicator.timer, stream);
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
  PendingLaunch& pending = communicator.pending;
  const uint32_t index = Ticket::Child(pending.open_launch.load(std::memory_order_relaxed));
  if (index >= kTimedPairs) return;
  TimedPair& pair = communicator.timer.pairs[index];
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
  PendingLaunch& pending = communicator.pending;
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
  TimedPair* pair = index < kTimedPairs ? &communicator.timer.pairs[index] : nullptr;
  const bool kept = stream_timer_->End(
      communicator.timer, pending.stream.load(std::memory_order_relaxed), pair, now_ns);
  if (!kept) CountLostLaunch(communicator, *pair);
}

void Tracker::CountFate(Communicator& communicator, LaneWriter& lane, NameId op, uint64_t bytes,
                        uint64_t call) {
  // Relaxed: see PendingLaunch. An operation that NCCL reports from another thread (a CUDA host
  // callback) may be told the fate of another launch; only the reason is then wrong, for the one
  // that a launch times alone is known by its serial.
  PendingLaunch& pending = communicator.pending;
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
  TimedPair& pair = communicator.timer.pairs[index];
  Add(pair.seen_bytes, bytes);
  Add(pair.seen_bus_bytes,
      BusBytes(op, bytes, communicator.nranks.load(std::memory_order_relaxed)));
  Add(pair.seen, 1);
}

void Tracker::CountTimedLaunch(Communicator& communicator, const TimedPair& pair,
                               uint64_t duration_ns) {
  LaneWriter lane(segment_, *communicator.record,
                  communicator.record_generation.load(std::memory_order_relaxed),
                  LaneRole::kProgress);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  // Relaxed: published when the pair was armed. What Coll and P2p added since came microseconds
  // after the launch, long before a poll.
  OperationMeta meta = OperationMeta::Unpack(pair.call_meta.load(std::memory_order_relaxed));
  uint64_t bytes = pair.call_bytes.load(std::memory_order_relaxed);
  uint64_t bus_bytes = pair.call_bus_bytes.load(std::memory_order_relaxed);
  if (pair.calls.load(std::memory_order_relaxed) != 1) {
    if (pair.seen.load(std::memory_order_relaxed) > 0) {
      bytes = pair.seen_bytes.load(std::memory_order_relaxed);
      bus_bytes = pair.seen_bus_bytes.load(std::memory_order_relaxed);
    }
    meta = {kGroupedName, static_cast<uint8_t>(SizeClassOf(bytes)), 0, false, meta.call_number};
  }
  CountLatency(communicator, lane, LatencyKind::kDurationStream, meta, bytes, bus_bytes,
               duration_ns, pair.launch_ns.load(std::memory_order_relaxed) + duration_ns);
}

// Of several operations each has been counted as one of a group.
void Tracker::CountLostLaunch(Communicator& communicator, const TimedPair& pair) {
  if (pair.calls.load(std::memory_order_relaxed) != 1) return;  // as in CountTimedLaunch
  LaneWriter lane(segment_, *communicator.record,
                  communicator.record_generation.load(std::memory_order_relaxed),
                  LaneRole::kProgress);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  const auto meta = OperationMeta::Unpack(pair.call_meta.load(std::memory_order_relaxed));
  CountUntimed(lane, meta.op, UntimedReason::kLost);
}

bool Tracker::PollLaunches() {
  if (stream_timer_ == nullptr) return false;
  const uint64_t now_ns = clock_.NowNs();
  bool in_flight = false;
  const uint32_t used = used_slots_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) in_flight |= PollCommunicator(slots_[i], now_ns);
  return in_flight;
}

bool Tracker::PollCommunicator(Communicator& communicator, uint64_t now_ns) {
  CommunicatorTimer& timer = communicator.timer;
  CommunicatorRecord& record = *communicator.record;
  const uint32_t state = timer.state.load(std::memory_order_acquire);  // sees the events
  if (state == CommunicatorTimer::kOff) return false;
  // When the place already belongs to the next communicator, which then has no timer, the old one's
  // end is nobody's.
  const bool counts =
      state == CommunicatorTimer::kOn || communicator.context.load(std::memory_order_acquire) == 0;
  StreamTimer::Progress progress;
  const bool alive = stream_timer_->Poll(
      timer, now_ns,
      [&](const TimedPair& pair, uint64_t duration_ns) {
        CountTimedLaunch(communicator, pair, duration_ns);
      },
      [&](const TimedPair& pair) {
        if (counts) CountLostLaunch(communicator, pair);
      },
      &progress);
  const bool ends = StreamTimer::IsOver(timer, now_ns);
  // Absent rather than wrong: when the driver failed, and when nobody looks any longer.
  if (counts && (!alive || (ends && progress.in_flight))) {
    record.has_heartbeat.store(0, std::memory_order_relaxed);
  }
  if (counts && alive) {
    // Since when before how many: a reader that sees work in flight finds its age.
    record.oldest_inflight_ns.store(progress.oldest_ns, std::memory_order_relaxed);
    record.launches_completed.store(progress.completed, std::memory_order_release);
    if (progress.advanced) {
      LaneWriter lane(segment_, record,
                      communicator.record_generation.load(std::memory_order_relaxed),
                      LaneRole::kBackground);
      if (lane.ok()) {
        lane.lane().last_completion_ns.store(now_ns, std::memory_order_relaxed);  // orders nothing
      }
    }
  }
  if (ends) stream_timer_->Destroy(timer);
  return progress.in_flight;
}

void Tracker::AdaptSampling() {
  if (stream_timer_ == nullptr || timing_ != TimingMode::kAuto) return;
  const uint64_t now_ns = clock_.NowNs();
  uint64_t launches = 0;
  uint64_t devices = 0;
  const uint32_t used = used_slots_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    CommunicatorTimer& timer = slots_[i].timer;
    if (!timer.is_on()) continue;
    devices |= uint64_t{1} << (timer.device & 63);
    const uint64_t launched = timer.launched.load(std::memory_order_relaxed);  // a rate: no order
    launches += launched - timer.adapted_launches;
    timer.adapted_launches = launched;
  }
  if (adapted_ns_ != 0 && now_ns > adapted_ns_) {
    const double seconds = static_cast<double>(now_ns - adapted_ns_) / 1e9;
    sampler_.Adapt(static_cast<double>(launches) / seconds, __builtin_popcountll(devices));
    segment_.header().sampling_exponent.store(sampler_.exponent(), std::memory_order_relaxed);
  }
  adapted_ns_ = now_ns;
}

}  // namespace nccl_pulse
