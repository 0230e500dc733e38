// Tracker, the part that follows copy-engine collectives: launches without a kernel, each of one
// operation, timed and followed like the others (stream_timer.h).
//
// NCCL makes their copies on the launch's stream between CeColl start and stop, on the launching
// thread, and orders them with its kernels (2.29, src/ce_coll.cc: ncclLaunchCeColl; src/group.cc:
// doLaunches). It reports them neither as KernelLaunch nor as Coll.
#include <algorithm>

#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/tracker.h"
#include "plugin/tracker/uncounted_call.h"

namespace nccl_pulse {

uint64_t Tracker::StartCopyEngineOperation(uint64_t context, const CopyEngineEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  const bool captured = IsCalledIntoGraph(*communicator, event.parent) ||
                        (IsFollowed(*communicator) && IsInCapture(*communicator, event.stream));
  const bool followed = !captured && IsFollowed(*communicator);
  const NameId op = names_.Find(event.func).id;
  const uint64_t bytes = event.count * names_.Find(event.datatype).element_bytes;
  const TimedPair* pair = nullptr;
  if (!captured && !followed) CoverCalls(*communicator->launching);
  if (followed) {
    if (communicator->launching->pending.is_open.load(std::memory_order_relaxed)) {
      AbandonLaunch(*communicator);
    }
    if (IsGateDue(communicator->launching->pending)) {
      stream_timer_->RecordGate(communicator->launching->timer, event.stream, clock_.NowNs());
    }
    communicator->launching->pending.is_eager.store(true, std::memory_order_relaxed);
    pair = BeginCopyEngineTiming(
        *communicator, event, {op, static_cast<uint8_t>(SizeClassOf(bytes)), 0, false, 0}, bytes);
  }
  {
    LaneWriter lane = ClaimLane(*communicator, LaneRole::kLaunch);
    if (lane.ok()) {
      CountUncounted(*communicator->record, lane);
      AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kOperation)], 1);
      lane.Count(SeriesKey::Pack(SeriesKind::kAlgorithm, op, 0, names_.Find("CE").id, kNoName), 1,
                 0);
      // One that is followed counts as a launch when it has been made.
      if (!captured && !followed) AddToCell(lane.lane().launches, 1);
      if (pair == nullptr) {
        CountUntimed(lane, op,
                     timing_ == TimingMode::kKernel ? UntimedReason::kInvisible
                     : captured                     ? UntimedReason::kCaptured
                     : followed                     ? UntimedReason::kNotSampled
                                                    : UntimedReason::kNotTimed);
      }
    } else {
      Ignore(IgnoredReason::kNoRoom);
    }
  }
  return followed ? OpenLaunch(*communicator->launching, event.stream, pair, context) : 0;
}

TimedPair* Tracker::BeginCopyEngineTiming(Communicator& communicator, const CopyEngineEvent& event,
                                          OperationMeta meta, uint64_t bytes) {
  // Relaxed throughout: see PendingLaunch.
  PendingLaunch& pending = communicator.launching->pending;
  const bool has_call = IsOwn(event.parent, TicketKind::kApiCall);
  const uint32_t serial = has_call ? Ticket::Generation(event.parent) : 0;
  const uint32_t calls = pending.calls.load(std::memory_order_relaxed);
  OperationMeta sampled_by = meta;
  if (calls == 1 || (serial != 0 && serial == pending.serial.load(std::memory_order_relaxed))) {
    meta = sampled_by = OperationMeta::Unpack(pending.meta.load(std::memory_order_relaxed));
  } else {
    // An earlier call of a group: its number is not known any more. As for launches of several.
    const uint64_t number = pending.grouped_launches.load(std::memory_order_relaxed);
    pending.grouped_launches.store(number + 1, std::memory_order_relaxed);
    sampled_by = {kGroupedName, 0, 0, false, static_cast<uint32_t>(number)};
  }
  pending.is_kernel.store(false, std::memory_order_relaxed);
  // What is left of the group is launched with the kernels; of two calls on, as a group.
  if (calls == 1) {
    pending.calls.store(0, std::memory_order_relaxed);
  } else if (calls > 1) {
    const uint64_t bus_bytes =
        BusBytes(meta.op, bytes, communicator.nranks.load(std::memory_order_relaxed));
    const auto take = [](std::atomic<uint64_t>& cell, uint64_t amount) {
      const uint64_t value = cell.load(std::memory_order_relaxed);
      cell.store(value - std::min(value, amount), std::memory_order_relaxed);
    };
    std::atomic<uint32_t>& copies = communicator.launching->unreported.copies;
    copies.store(copies.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    take(pending.bytes, bytes);
    take(pending.bus_bytes, bus_bytes);
  }
  if (timing_ != TimingMode::kAuto) return nullptr;
  if (!ShouldTime(communicator, sampled_by) || !sampler_.Spend()) return nullptr;
  TimedPair* pair = stream_timer_->BeginTiming(communicator.launching->timer, event.stream);
  if (pair == nullptr) return nullptr;
  // Published when the pair is armed.
  pair->calls.store(1, std::memory_order_relaxed);
  pair->call_meta.store(meta.Pack(), std::memory_order_relaxed);
  pair->call_bytes.store(bytes, std::memory_order_relaxed);
  pair->call_bus_bytes.store(
      BusBytes(meta.op, bytes, communicator.nranks.load(std::memory_order_relaxed)),
      std::memory_order_relaxed);
  // Both at once: this event is the launch and the report.
  NoteTimed(pending, serial);
  pending.reported_serial.store(serial, std::memory_order_relaxed);
  return pair;
}

}  // namespace nccl_pulse
