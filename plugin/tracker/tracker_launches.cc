// Tracker, the part that follows launches: what is called, what is launched, and which launches are
// timed on their stream (stream_timer.h).
#include <algorithm>

#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/tracker.h"
#include "plugin/tracker/uncounted_call.h"

namespace nccl_pulse {
namespace {

// A cell of PendingLaunch or TimedPair that has one writer at a time. Relaxed: see PendingLaunch.
template <typename Number>
void Add(std::atomic<Number>& cell, Number amount) {
  cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

uint64_t Tracker::StartGroup(uint64_t context, bool captured) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  BeginGroup();
  // Nothing to tell its launches: NCCL then makes three calls less for it.
  if (!captured) return 0;
  return Ticket::Pack(process_tag_, TicketKind::kGroup, 1, 0, 0, communicator->index);
}

void Tracker::BeginGroup() {
  const auto thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
  ThreadGroup& entry = GroupOfThread(thread);
  // Relaxed: of this thread alone, or of several, then none of them learns anything from it.
  entry.thread.store(thread, std::memory_order_relaxed);
  Add(entry.group, uint64_t{1});
}

uint64_t Tracker::ThisGroup() {
  const auto thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
  const ThreadGroup& entry = GroupOfThread(thread);
  // Relaxed: see BeginGroup.
  if (__builtin_expect(entry.thread.load(std::memory_order_relaxed) != thread, 0)) return 0;
  return thread << 16 ^ entry.group.load(std::memory_order_relaxed);
}

uint64_t Tracker::StartCall(uint64_t context, const CallEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  const CachedName op = names_.Find(event.func);
  const CachedName datatype = names_.Find(event.datatype);
  const uint64_t bytes = event.count * datatype.element_bytes;
  const auto size_class = static_cast<uint32_t>(SizeClassOf(bytes));
  FollowedLaunches& followed = communicator->record->followed;
  // Relaxed: stands alone.
  followed.last_call.store(op.id + 1 + (size_class << 8), std::memory_order_relaxed);
  const uint64_t key =
      SeriesKey::Pack(SeriesKind::kCalls, op.id, size_class, datatype.id, event.captured ? 1 : 0);
  // Acquire: who counted the call before this one has read its bytes.
  if (__builtin_expect(followed.uncounted_call.load(std::memory_order_acquire) != 0, 0)) {
    CountCall(*communicator, key, bytes);
  } else {
    followed.uncounted_bytes.store(bytes, std::memory_order_relaxed);  // published by the key
    followed.uncounted_call.store(key, std::memory_order_release);
  }
  uint32_t serial = 0;
  if (__builtin_expect(stream_timer_ != nullptr, 1)) {
    serial = NoteCall(*communicator, op.id, size_class, bytes);
  }
  if (__builtin_expect(event.captured, 0)) {
    NoteCapturedCall(*communicator, {event.stream, op.id, size_class, bytes});
  }
  // What it tells its operation: that it was captured, and which launch may have timed it.
  if (__builtin_expect(!event.captured && serial == 0, 1)) return 0;
  return Ticket::Pack(process_tag_, TicketKind::kApiCall, event.captured ? 1 : 0, serial, 0,
                      communicator->index);
}

void Tracker::CountCall(Communicator& communicator, uint64_t key, uint64_t bytes) {
  LaneWriter lane = ClaimLane(communicator, LaneRole::kLaunch);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  CountUncounted(*communicator.record, lane);
  AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kApi)], 1);
  lane.Count(key, 1, bytes);
}

void Tracker::CountLeftCall(Communicator& communicator) {
  LaneWriter lane = ClaimLane(communicator, LaneRole::kLaunch);
  if (lane.ok()) CountUncounted(*communicator.record, lane);
}

uint32_t Tracker::NoteCall(Communicator& communicator, NameId op, uint32_t size_class,
                           uint64_t bytes) {
  // Relaxed throughout: see PendingLaunch.
  LaunchState& launching = *communicator.launching;
  PendingLaunch& pending = launching.pending;
  std::atomic<uint32_t>& number = launching.call_numbers[OperationRowOf(op)][size_class];
  const uint32_t call_number = number.load(std::memory_order_relaxed);
  number.store(call_number + 1, std::memory_order_relaxed);
  const uint64_t group = ThisGroup();
  if (__builtin_expect(pending.calls.load(std::memory_order_relaxed) != 0, 0)) {
    NoteUnlaunchedCalls(communicator, op, bytes, group);
  } else {
    NoteFirstCall(pending, bytes, group);
  }
  const OperationMeta meta{op, static_cast<uint8_t>(size_class), 0, false, call_number};
  pending.meta.store(meta.Pack(), std::memory_order_relaxed);
  const bool sampled = timing_ == TimingMode::kAuto && ShouldTime(communicator, meta);
  pending.sampled.store(sampled, std::memory_order_relaxed);
  return __builtin_expect(sampled, 0) ? NextSerial(pending) : 0;
}

uint32_t Tracker::NextSerial(PendingLaunch& pending) {
  // Relaxed: see PendingLaunch.
  const uint32_t next =
      (pending.serial.load(std::memory_order_relaxed) + 1) & Ticket::kGenerationMask;
  const uint32_t serial = next != 0 ? next : 1;
  pending.serial.store(serial, std::memory_order_relaxed);
  return serial;
}

uint64_t Tracker::PendingBusBytes(const Communicator& communicator) {
  // Relaxed: see PendingLaunch.
  const PendingLaunch& pending = communicator.launching->pending;
  if (pending.calls.load(std::memory_order_relaxed) > 1) {
    return pending.bus_bytes.load(std::memory_order_relaxed);
  }
  const auto meta = OperationMeta::Unpack(pending.meta.load(std::memory_order_relaxed));
  return BusBytes(meta.op, pending.bytes.load(std::memory_order_relaxed),
                  communicator.nranks.load(std::memory_order_relaxed));
}

void Tracker::NoteFirstCall(PendingLaunch& pending, uint64_t bytes, uint64_t group) {
  // Relaxed: see PendingLaunch.
  pending.group.store(group, std::memory_order_relaxed);
  pending.calls.store(1, std::memory_order_relaxed);
  pending.bytes.store(bytes, std::memory_order_relaxed);
}

bool Tracker::ShouldTime(const Communicator& communicator, const OperationMeta& meta) const {
  return sampler_.ShouldTime(communicator.sampling_seed.load(std::memory_order_relaxed),
                             OperationRowOf(meta.op), meta.size_class, meta.call_number);
}

bool Tracker::IsFollowed(const Communicator& communicator) const {
  return stream_timer_ != nullptr && communicator.launching->timer.is_on();
}

// Of a launch or copy-engine collective, by its group or call: it was called into a graph.
bool Tracker::IsCalledIntoGraph(Communicator& communicator, uint64_t parent) {
  const TicketKind kind = Ticket::Kind(parent);
  const bool captured = __builtin_expect(parent != 0, 0) &&
                        (kind == TicketKind::kGroup || kind == TicketKind::kApiCall) &&
                        Ticket::Process(parent) == process_tag_ && Ticket::Child(parent) != 0;
  if (captured) communicator.record->captured.store(1, std::memory_order_relaxed);  // a flag
  return captured;
}

// Part of a graph all the same: it is not launched now, and its replays will not be seen.
bool Tracker::IsInCapture(Communicator& communicator, CudaStream stream) {
  const bool captured = stream_timer_->IsCapturing(communicator.launching->timer, stream);
  if (captured) communicator.record->captured.store(1, std::memory_order_relaxed);  // a flag
  return captured;
}

uint64_t Tracker::StartLaunch(uint64_t context, const LaunchEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  const bool captured = IsCalledIntoGraph(*communicator, event.parent);
  // One that is followed counts when it has been made.
  if (__builtin_expect(!captured && IsFollowed(*communicator), 1)) {
    return BeginLaunch(*communicator, event, context);
  }
  CountUnfollowedLaunch(*communicator, captured);
  return captured && graphs_ != nullptr ? StartCapturedLaunch(*communicator, event, context) : 0;
}

void Tracker::CountUnfollowedLaunch(Communicator& communicator, bool captured) {
  communicator.launching->pending.fate.store(static_cast<uint8_t>(LaunchFate::kNotTimed),
                                             std::memory_order_relaxed);  // see PendingLaunch
  if (!captured) CoverCalls(*communicator.launching);
  CountLaunchCallback(communicator, !captured);
}

void Tracker::CountLaunchCallback(Communicator& communicator, bool is_launch) {
  LaneWriter lane = ClaimLane(communicator, LaneRole::kLaunch);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kLaunch)], 1);
  if (is_launch) AddToCell(lane.lane().launches, 1);
}

bool Tracker::IsGateDue(const PendingLaunch& pending) {
  constexpr uint32_t kHurriedSpacing = 128;
  // Relaxed: see PendingLaunch; the poller sets the flag, too, and being late is harmless.
  return pending.is_unhurried.load(std::memory_order_relaxed) ||
         pending.launch_number.load(std::memory_order_relaxed) % kHurriedSpacing == 0;
}

uint64_t Tracker::BeginLaunch(Communicator& communicator, const LaunchEvent& event,
                              uint64_t context) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  if (__builtin_expect(pending.is_open.load(std::memory_order_relaxed), 0)) {
    AbandonLaunch(communicator);
  }
  const uint32_t calls = pending.calls.load(std::memory_order_relaxed);  // 0: further of a group
  const bool times = timing_ == TimingMode::kAuto;
  const bool may_be_timed =
      times && (calls != 1 || pending.sampled.load(std::memory_order_relaxed));
  LaunchFate fate = times ? LaunchFate::kNotSampled : LaunchFate::kNotTimed;
  const TimedPair* pair = nullptr;
  const bool records = may_be_timed || IsGateDue(pending);
  if (__builtin_expect(records, 0)) {
    if (!RecordInFront(communicator, event.stream, may_be_timed, calls, &pair)) return 0;
    if (pair != nullptr) fate = calls == 1 ? LaunchFate::kTimed : LaunchFate::kGrouped;
  }
  pending.is_eager.store(records, std::memory_order_relaxed);
  pending.calls.store(0, std::memory_order_relaxed);
  pending.fate.store(static_cast<uint8_t>(fate), std::memory_order_relaxed);
  pending.is_kernel.store(true, std::memory_order_relaxed);
  return OpenLaunch(*communicator.launching, event.stream, pair, context);
}

bool Tracker::RecordInFront(Communicator& communicator, CudaStream stream, bool may_be_timed,
                            uint32_t calls, const TimedPair** pair) {
  if (IsInCapture(communicator, stream)) {
    CountUnfollowedLaunch(communicator, true);
    return false;
  }
  LaunchState& launching = *communicator.launching;
  if (IsGateDue(launching.pending)) {
    stream_timer_->RecordGate(launching.timer, stream, clock_.NowNs());
  }
  // Last: what is recorded behind it would be timed, too.
  if (may_be_timed) *pair = BeginTiming(communicator, stream, calls);
  return true;
}

uint64_t Tracker::OpenLaunch(LaunchState& launching, CudaStream stream, const TimedPair* pair,
                             uint64_t context) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = launching.pending;
  const uint32_t index = __builtin_expect(pair != nullptr, 0)
                             ? static_cast<uint32_t>(pair - launching.timer.pairs)
                             : kNoPair;
  pending.pair.store(static_cast<uint16_t>(index), std::memory_order_relaxed);
  pending.stream.store(stream, std::memory_order_relaxed);
  const uint32_t number = pending.launch_number.load(std::memory_order_relaxed) + 1;
  pending.launch_number.store(number, std::memory_order_relaxed);
  pending.is_open.store(true, std::memory_order_relaxed);
  return Ticket::OfLaunch(context, index, number & ((1u << Ticket::kOperationBits) - 1));
}

TimedPair* Tracker::BeginTiming(Communicator& communicator, CudaStream stream, uint32_t calls) {
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
    if (!ShouldTime(communicator, meta)) return nullptr;
  } else if (pending.reported_serial.load(std::memory_order_relaxed) == serial) {
    return nullptr;  // NCCL reported the operation before its launch: it is counted as untimed
  }
  if (!sampler_.Spend()) return nullptr;
  TimedPair* pair = stream_timer_->BeginTiming(communicator.launching->timer, stream);
  if (pair == nullptr) return nullptr;
  // Published when the pair is armed.
  pair->calls.store(calls, std::memory_order_relaxed);
  pair->call_meta.store(call_meta, std::memory_order_relaxed);
  // The first launch of a group that is cut into several stands for its calls, unless NCCL says
  // which operations it carries.
  pair->call_bytes.store(calls > 0 ? pending.bytes.load(std::memory_order_relaxed) : 0,
                         std::memory_order_relaxed);
  pair->call_bus_bytes.store(calls > 0 ? PendingBusBytes(communicator) : 0,
                             std::memory_order_relaxed);
  if (calls == 1) NoteTimed(pending, serial);
  return pair;
}

void Tracker::NoteTimed(PendingLaunch& pending, uint32_t serial) {
  // Relaxed: see PendingLaunch.
  const uint32_t number = pending.timed_calls.load(std::memory_order_relaxed);
  pending.timed_serials[number % kTimedPairs].store(serial, std::memory_order_relaxed);
  pending.timed_calls.store(number + 1, std::memory_order_relaxed);
}

bool Tracker::WasTimed(const PendingLaunch& pending, uint32_t serial) {
  return std::any_of(std::begin(pending.timed_serials), std::end(pending.timed_serials),
                     [serial](const std::atomic<uint32_t>& timed) {
                       return timed.load(std::memory_order_relaxed) == serial;
                     });
}

// A launch that was begun and never ended; NCCL has gone on to the next one.
void Tracker::AbandonLaunch(Communicator& communicator) {
  // Relaxed: see PendingLaunch; the pair is this side's own until it is armed.
  PendingLaunch& pending = communicator.launching->pending;
  if (pending.is_kernel.load(std::memory_order_relaxed)) CountLaunchCallback(communicator, false);
  StreamTimer::GiveGateUp(communicator.launching->timer);
  const uint32_t index = pending.pair.load(std::memory_order_relaxed);
  if (index >= kTimedPairs) return;
  TimedPair& pair = communicator.launching->timer.pairs[index];
  if (pair.calls.load(std::memory_order_relaxed) == 1) {
    std::atomic<uint32_t>& timed =
        pending
            .timed_serials[(pending.timed_calls.load(std::memory_order_relaxed) - 1) % kTimedPairs];
    const bool reported = timed.load(std::memory_order_relaxed) ==
                          pending.reported_serial.load(std::memory_order_relaxed);
    if (reported) {
      CountLostLaunch(communicator, communicator.record_generation.load(std::memory_order_relaxed),
                      pair);
    }
    // Should it be reported yet, it is one that was not timed.
    if (!reported) timed.store(0, std::memory_order_relaxed);
  }
  pair.state.store(TimedPair::kFree, std::memory_order_relaxed);
}

void Tracker::StopLaunch(uint64_t ticket) {
  Communicator& communicator = slots_[Ticket::Communicator(ticket)];
  const uint64_t context = communicator.context.load(std::memory_order_acquire);  // sees the events
  if (__builtin_expect(context == 0 || Ticket::Generation(context) != Ticket::Generation(ticket),
                       0)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  // Relaxed: see PendingLaunch.
  LaunchState& launching = *communicator.launching;
  PendingLaunch& pending = launching.pending;
  const uint32_t number = pending.launch_number.load(std::memory_order_relaxed);
  if (__builtin_expect(
          !pending.is_open.load(std::memory_order_relaxed) ||
              Ticket::Operation(ticket) != (number & ((1u << Ticket::kOperationBits) - 1)),
          0)) {
    return Ignore(IgnoredReason::kRepeatedStop);
  }
  pending.is_open.store(false, std::memory_order_relaxed);
  CudaStream const stream = pending.stream.load(std::memory_order_relaxed);
  // Where nothing was recorded before the launch, this need not have been asked before it either:
  // the launch does not wait for the answer.
  if (__builtin_expect(!pending.is_eager.load(std::memory_order_relaxed), 1) &&
      __builtin_expect(IsInCapture(communicator, stream), 0)) {
    return CountUnfollowedLaunch(communicator, true);
  }
  const uint64_t now_ns = clock_.NowNs();
  FollowedLaunches& followed = communicator.record->followed;
  if (__builtin_expect(pending.is_kernel.load(std::memory_order_relaxed), 1)) {
    AddToCell(followed.callbacks, 1);
  }
  // Before the events: never have more completed than were launched.
  AddToCell(followed.launches, 1);
  constexpr uint64_t kUnhurriedNs = 200000;
  pending.is_unhurried.store(
      now_ns >= followed.last_launch_ns.load(std::memory_order_relaxed) + kUnhurriedNs,
      std::memory_order_relaxed);
  followed.last_launch_ns.store(now_ns, std::memory_order_relaxed);  // orders nothing
  const uint32_t index = Ticket::Child(ticket);
  if (__builtin_expect(index < kTimedPairs, 0)) EndTiming(communicator, stream, index, now_ns);
  stream_timer_->End(launching.timer, stream, now_ns);
}

void Tracker::EndTiming(Communicator& communicator, CudaStream stream, uint32_t index,
                        uint64_t now_ns) {
  CommunicatorTimer& timer = communicator.launching->timer;
  TimedPair& pair = timer.pairs[index];
  if (stream_timer_->EndPair(timer, stream, pair, now_ns)) return;
  CountLostLaunch(communicator, communicator.record_generation.load(std::memory_order_relaxed),
                  pair);
}

void Tracker::NoteOfGroup(Communicator& communicator, NameId op, uint64_t bytes) {
  // Relaxed: see PendingLaunch.
  const uint32_t index = communicator.launching->pending.pair.load(std::memory_order_relaxed);
  if (index >= kTimedPairs) return;
  TimedPair& pair = communicator.launching->timer.pairs[index];
  Add(pair.seen_bytes, bytes);
  Add(pair.seen_bus_bytes,
      BusBytes(op, bytes, communicator.nranks.load(std::memory_order_relaxed)));
  Add(pair.seen, uint64_t{1});
}

}  // namespace nccl_pulse
