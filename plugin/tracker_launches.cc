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

void Tracker::NoteCall(Communicator& communicator, NameId op, uint64_t bytes, uint64_t group) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.pending;
  const int size_class = SizeClassOf(bytes);
  const int row =
      op >= kFirstNcclName ? std::min(op - kFirstNcclName, kCallRows - 1) : kCallRows - 1;
  std::atomic<uint32_t>& number = communicator.call_numbers[row][size_class];
  const uint32_t call_number = number.load(std::memory_order_relaxed);
  number.store(call_number + 1, std::memory_order_relaxed);
  if (pending.group.load(std::memory_order_relaxed) != group) {
    // Calls of an earlier group that were never launched (a count of 0) are not this group's.
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
}

bool Tracker::ShouldTime(const Communicator& communicator, const OperationMeta& meta) const {
  return timing_ == TimingMode::kAuto &&
         sampler_.ShouldTime(communicator.comm_id.load(std::memory_order_relaxed), meta.op,
                             meta.size_class, meta.call_number);
}

LaunchFate Tracker::BeginLaunch(Communicator& communicator, const LaunchEvent& event,
                                LaunchMark* mark, bool* captured) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.pending;
  const uint64_t calls = pending.group.load(std::memory_order_relaxed) == event.parent
                             ? pending.calls.load(std::memory_order_relaxed)
                             : 0;  // a further launch of a large group
  pending.calls.store(0, std::memory_order_relaxed);
  const uint64_t call_meta = pending.meta.load(std::memory_order_relaxed);
  OperationMeta meta = OperationMeta::Unpack(call_meta);
  if (calls != 1) {
    // Point-to-point plans are cut differently on each rank: a count of their own, no agreement
    // claimed.
    const uint64_t number = pending.grouped_launches.load(std::memory_order_relaxed);
    pending.grouped_launches.store(number + 1, std::memory_order_relaxed);
    meta = {kGroupedName, 0, 0, false, static_cast<uint32_t>(number)};
  }
  const StreamState state =
      stream_timer_->Begin(communicator.timer, event.stream, ShouldTime(communicator, meta), mark);
  if (state == StreamState::kCapturing) *captured = true;
  if (timing_ != TimingMode::kAuto) return LaunchFate::kNotTimed;
  if (mark->pair == LaunchMark::kNone) return LaunchFate::kNotSampled;
  TimedPair& pair = communicator.timer.pairs[mark->pair];  // published when it is armed
  pair.calls.store(static_cast<uint32_t>(calls), std::memory_order_relaxed);
  pair.call_meta.store(call_meta, std::memory_order_relaxed);
  pair.call_bytes.store(pending.bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
  pair.call_bus_bytes.store(pending.bus_bytes.load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
  return calls == 1 ? LaunchFate::kTimed : LaunchFate::kGrouped;
}

uint64_t Tracker::StartLaunch(uint64_t context, const LaunchEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  LaunchMark mark;
  LaunchFate fate = LaunchFate::kNotTimed;
  bool captured =
      Ticket::Issuer(event.parent) == Ticket::MakeIssuer(process_tag_, TicketKind::kGroup) &&
      Ticket::Child(event.parent) != 0;
  // Acquire: sees the events.
  if (!captured && stream_timer_ != nullptr &&
      communicator->timer.state.load(std::memory_order_acquire) == CommunicatorTimer::kOn) {
    fate = BeginLaunch(*communicator, event, &mark, &captured);
  }
  communicator->pending.pair.store(mark.pair, std::memory_order_relaxed);  // see PendingLaunch
  communicator->pending.fate.store(static_cast<uint32_t>(fate), std::memory_order_relaxed);
  if (captured) {
    // Part of a graph: it is not launched now, and its replays will not be seen.
    communicator->record->captured.store(1, std::memory_order_relaxed);  // a flag
    return 0;
  }
  {
    LaneWriter lane(segment_, *communicator->record,
                    communicator->record_generation.load(std::memory_order_relaxed),
                    LaneRole::kLaunch);
    if (!lane.ok()) {
      Ignore(IgnoredReason::kNoRoom);
      return 0;
    }
    AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kLaunch)], 1);
    AddToCell(lane.lane().launches, 1);
  }
  if (mark.stream == LaunchMark::kNone) return 0;
  return Ticket::Pack(process_tag_, TicketKind::kLaunch, mark.pair, Ticket::Generation(context),
                      mark.stream, communicator->index);
}

void Tracker::StopLaunch(uint64_t ticket) {
  Communicator& communicator = slots_[Ticket::Communicator(ticket)];
  const uint64_t context = communicator.context.load(std::memory_order_acquire);  // sees the events
  if (context == 0 || Ticket::Generation(context) != Ticket::Generation(ticket)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  const LaunchMark mark{static_cast<uint8_t>(std::min(Ticket::Operation(ticket), 0xffu)),
                        static_cast<uint8_t>(Ticket::Child(ticket))};
  stream_timer_->End(communicator.timer, mark, clock_.NowNs());
}

void Tracker::CountFate(Communicator& communicator, LaneWriter& lane, NameId op, uint64_t bytes,
                        bool captured) {
  if (captured) return CountUntimed(lane, op, UntimedReason::kCaptured);
  // Relaxed: see PendingLaunch. An operation that NCCL reports from another thread (a CUDA host
  // callback) may be told the fate of a later launch; only the reason is then wrong.
  switch (static_cast<LaunchFate>(communicator.pending.fate.load(std::memory_order_relaxed))) {
    case LaunchFate::kNotTimed:
      return CountUntimed(lane, op, UntimedReason::kNotTimed);
    case LaunchFate::kNotSampled:
      return CountUntimed(lane, op, UntimedReason::kNotSampled);
    case LaunchFate::kTimed:
      return;  // CountTimedLaunch, or untimed there
    case LaunchFate::kGrouped:
      CountUntimed(lane, op, UntimedReason::kGrouped);
      break;
  }
  const uint32_t index = communicator.pending.pair.load(std::memory_order_relaxed);
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

bool Tracker::PollLaunches() {
  if (stream_timer_ == nullptr) return false;
  const uint64_t now_ns = clock_.NowNs();
  bool in_flight = false;
  const uint32_t used = used_slots_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    Communicator& communicator = slots_[i];
    CommunicatorTimer& timer = communicator.timer;
    const uint32_t state = timer.state.load(std::memory_order_acquire);  // sees the events
    if (state != CommunicatorTimer::kOn && state != CommunicatorTimer::kRetired) continue;
    StreamTimer::Progress progress;
    const bool alive = stream_timer_->Poll(
        timer,
        [&](const TimedPair& pair, uint64_t duration_ns) {
          // How long an operation of an aborted communicator took says nothing.
          if (state == CommunicatorTimer::kOn) CountTimedLaunch(communicator, pair, duration_ns);
        },
        &progress);
    CommunicatorRecord& record = *communicator.record;
    if (!alive) {
      record.has_heartbeat.store(0, std::memory_order_relaxed);  // absent rather than wrong
      continue;
    }
    // Since when before how many: a reader that sees work in flight finds its age.
    record.oldest_inflight_ns.store(progress.oldest_ns, std::memory_order_relaxed);
    record.launches_completed.store(progress.completed, std::memory_order_release);
    in_flight |= progress.completed < progress.launched || progress.pairs_armed;
    if (state == CommunicatorTimer::kRetired) stream_timer_->DestroyRetired(timer, now_ns);
  }
  return in_flight;
}

void Tracker::AdaptSampling() {
  if (stream_timer_ == nullptr || timing_ != TimingMode::kAuto) return;
  const uint64_t now_ns = clock_.NowNs();
  uint64_t launches = 0;
  uint64_t devices = 0;
  const uint32_t used = used_slots_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    const CommunicatorTimer& timer = slots_[i].timer;
    if (timer.state.load(std::memory_order_acquire) != CommunicatorTimer::kOn) continue;
    devices |= uint64_t{1} << (timer.device & 63);
    for (const StreamHeartbeat& stream : timer.streams) {
      launches += stream.launched.load(std::memory_order_relaxed);  // a rate needs no order
    }
  }
  // When a communicator has gone the difference is useless; the next second puts it right.
  if (adapted_ns_ != 0 && now_ns > adapted_ns_ && launches >= launches_when_adapted_) {
    const double seconds = static_cast<double>(now_ns - adapted_ns_) / 1e9;
    sampler_.Adapt(static_cast<double>(launches - launches_when_adapted_) / seconds,
                   __builtin_popcountll(devices));
    segment_.header().sampling_exponent.store(sampler_.exponent(), std::memory_order_relaxed);
  }
  adapted_ns_ = now_ns;
  launches_when_adapted_ = launches;
}

}  // namespace nccl_pulse
