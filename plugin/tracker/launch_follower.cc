#include "plugin/tracker/launch_follower.h"

#include <algorithm>

#include "plugin/tracker/counting.h"
#include "plugin/tracker/work_follower.h"

namespace nccl_pulse {

void LaunchFollower::Reset() {
  for (auto& number : call_numbers_) number.store(0);
  calls_.store(0);
  state_.store(kUnhurried);
  hidden_.Reset();
  may_hide_.store(false);
  hides_others_.store(false);
  hurried_gates_.store(kGatesAfterLook);
  fate_.store(static_cast<uint8_t>(LaunchFate::kNotTimed));
  unfollowed_launches_.store(0);
  timed_.Reset();
  unreported_.Reset();
  composite_.Reset();
}

// ---- calls --------------------------------------------------------------------------------------

uint32_t LaunchFollower::calls() const {
  uint32_t sum = 0;
  for (uint32_t row = 0; row < kOperationRows; ++row) {
    for (uint32_t size = 0; size < kSizeClasses; ++size) {
      sum += call_numbers_[IndexOfNumber(row, size)].load();
    }
  }
  return sum;
}

void LaunchFollower::NoteUnlaunchedCall(const Instruments& instruments, Communicator& communicator,
                                        const OperationRing& ring, NameId op, uint64_t bytes,
                                        uint64_t group) {
  // Calls of an earlier group that were never launched do not belong to this group.
  if (group != 0 && group_.load() != group) {
    unreported_.Leave(pending());
    NoteHidden(communicator, calls_.load() == 1);
    communicator.awaited_ends.Renew();
    NoteFirstCall(bytes, group);
    return;
  }
  NoteHidden(communicator, false);
  if (calls_.load() == 1) {
    const NameId first = OperationMeta::Unpack(meta_.load()).op;
    unreported_.BeginGroup(group_.load(), instruments.IsCollective(first), ring.reported());
    AddPart(instruments, communicator, first, bytes_.load(), group_.load());
  }
  unreported_.AddCall(instruments.IsCollective(op));
  AddPart(instruments, communicator, op, bytes, group);
  bus_bytes_.store(PendingBusBytes(communicator) + BusBytesOf(communicator, op, bytes));
  bytes_.add(bytes);
  calls_.add(1);
}

void LaunchFollower::NoteHidden(const Communicator& communicator, bool is_alone) {
  may_hide_.store(true);
  if (!is_alone || !IsBroadcast()) hides_others_.store(true);
  if (WorkFollower::MayHideBroadcasts(communicator)) timer_.StopCounting();
}

void LaunchFollower::AddPart(const Instruments& instruments, const Communicator& communicator,
                             NameId op, uint64_t bytes, uint64_t group) {
  const CompositeCall::Part part = op == instruments.send_name      ? CompositeCall::Part::kSend
                                   : op == instruments.receive_name ? CompositeCall::Part::kReceive
                                                                    : CompositeCall::Part::kOther;
  composite_.Add(group, part, bytes, static_cast<uint32_t>(communicator.nranks.load()));
}

uint64_t LaunchFollower::FinishComposite(Instruments& instruments, const Communicator& communicator,
                                         uint32_t calls, bool captured) {
  const NameId op = composite_.Finish(calls, static_cast<uint32_t>(communicator.nranks.load()));
  if (op == kNoName) return kNoComposite;
  const auto size_class = static_cast<uint8_t>(SizeClassOf(composite_.bytes()));
  LaneWriter lane = communicator.ClaimLane(instruments.segment, LaneRole::kOther);
  if (lane.ok()) {
    lane.Count(SeriesKey::Composite(op, size_class, captured), 1, 0);
  } else {
    instruments.Ignore(IgnoredReason::kNoRoom);
  }
  if (captured) return kNoComposite;
  Relaxed<uint32_t>& number = CallNumber(IndexOfNumber(OperationRowOf(op), size_class));
  // Every rank samples the same AlltoAlls, as with other collectives. All parts have the same tag.
  const OperationMeta meta{op,    size_class,    0,
                           false, number.load(), OperationMeta::Unpack(meta_.load()).user_tag};
  number.add(1);
  return meta.Pack();
}

uint64_t LaunchFollower::PendingBusBytes(const Communicator& communicator) const {
  if (calls_.load() > 1) return bus_bytes_.load();
  return BusBytesOf(communicator, OperationMeta::Unpack(meta_.load()).op, bytes_.load());
}

// ---- launches -----------------------------------------------------------------------------------

void LaunchFollower::CountUnfollowed(Instruments& instruments, Communicator& communicator,
                                     bool captured) {
  fate_.store(static_cast<uint8_t>(LaunchFate::kNotTimed));
  // A captured call is not pending, so only its parts are known.
  if (const uint32_t parts = captured ? composite_.parts() : calls_.load(); parts > 1) {
    FinishComposite(instruments, communicator, parts, captured);
  }
  if (!captured) {
    CoverCalls();
    unfollowed_launches_.store(unfollowed_launches_.load() + 1);
  }
  CountLaunchCallback(communicator, !captured);
}

bool LaunchFollower::RecordInFront(Instruments& instruments, Communicator& communicator,
                                   CudaStream stream, bool may_be_timed, uint32_t calls,
                                   uint64_t now_ns, uint32_t* pair) {
  // Pending calls were reported as not captured, so only a launch without calls is checked.
  if (calls == 0 && IsInCapture(instruments, communicator, stream)) {
    CountUnfollowed(instruments, communicator, true);
    return false;
  }
  const uint64_t composite =
      calls > 1 ? FinishComposite(instruments, communicator, calls, false) : kNoComposite;
  if (IsGateDue()) instruments.stream_timer->RecordGate(timer_, stream, now_ns);
  // Last: anything recorded on the stream after this event would also be timed.
  if (may_be_timed && instruments.samples()) {
    *pair = BeginTiming(instruments, communicator, stream, calls, composite);
  }
  return true;
}

OperationMeta LaunchFollower::NextGrouped(Instruments& instruments,
                                          const Communicator& communicator) {
  return timed_.NextGrouped(communicator.Writer(instruments.segment).followed_launches() +
                            unfollowed_launches_.load());
}

uint32_t LaunchFollower::BeginTiming(Instruments& instruments, const Communicator& communicator,
                                     CudaStream stream, uint32_t calls, uint64_t composite) {
  OperationMeta call = OperationMeta::Unpack(composite != kNoComposite ? composite : meta_.load());
  const uint32_t serial = timed_.serial();
  if (calls != 1) {
    const OperationMeta sampled_by =
        composite != kNoComposite ? call : NextGrouped(instruments, communicator);
    if (!ShouldTime(instruments, communicator, sampled_by)) return kNoPair;
    if (composite == kNoComposite) call.op = kGroupedName;
  } else if (timed_.WasReportedLast(serial)) {
    return kNoPair;  // NCCL reported the operation before its launch: it counts as untimed
  }
  if (!instruments.sampler.Spend()) return kNoPair;
  const uint32_t pair = instruments.stream_timer->BeginTiming(timer_, stream);
  if (pair == kNoPair) return kNoPair;
  // If a group is cut into several launches, the first one is assumed to carry all its calls,
  // unless NCCL reports which operations it carries.
  timed_.Carry(pair, calls, call, calls > 0 ? bytes_.load() : 0,
               calls > 0 ? PendingBusBytes(communicator) : 0);
  if (calls == 1) timed_.NoteTimed(serial);
  return pair;
}

void LaunchFollower::EndTiming(Instruments& instruments, Communicator& communicator,
                               CudaStream stream, uint32_t pair, uint64_t now_ns) {
  if (instruments.stream_timer->EndPair(timer_, stream, pair, now_ns)) return;
  CountLostLaunch(instruments, communicator, communicator.record_generation.load(),
                  timed_.LoadOf(pair));
}

void LaunchFollower::Abandon(Instruments& instruments, Communicator& communicator) {
  if (is_hurried()) return static_cast<void>(EndHurried(communicator.Writer(instruments.segment)));
  if (Has(kKernel)) CountLaunchCallback(communicator, false);
  Set(kAnyLaunch, false);
  StreamTimer::GiveGateUp(timer_);
  const uint32_t pair = pair_.load();
  if (pair >= kTimedPairs) return;
  const TimedLaunches::Load load = timed_.LoadOf(pair);
  if (load.is_single && timed_.Forget()) {
    CountLostLaunch(instruments, communicator, communicator.record_generation.load(), load);
  }
  StreamTimer::GivePairUp(timer_, pair);
}

// ---- copy engines -------------------------------------------------------------------------------

uint64_t LaunchFollower::StartCopies(Instruments& instruments, Communicator& communicator,
                                     const CopyEngineEvent& event, const OperationMeta& meta,
                                     uint64_t bytes, uint64_t context, bool* is_timed) {
  if (is_launching()) Abandon(instruments, communicator);
  timer_.StopCounting();  // the counter counts only kernels, and not by launch
  hides_others_.store(true);
  if (IsGateDue()) {
    instruments.stream_timer->RecordGate(timer_, event.stream, instruments.clock.NowNs());
  }
  const uint32_t pair = BeginCopyTiming(instruments, communicator, event, meta, bytes);
  *is_timed = pair != kNoPair;
  return Open(event.stream, pair, context, kOpen);
}

uint32_t LaunchFollower::BeginCopyTiming(Instruments& instruments, const Communicator& communicator,
                                         const CopyEngineEvent& event, OperationMeta meta,
                                         uint64_t bytes) {
  const bool has_call = instruments.IsOwn(event.parent, TicketKind::kApiCall);
  const uint32_t serial = has_call ? Ticket::Generation(event.parent) : 0;
  const uint32_t calls = calls_.load();
  OperationMeta sampled_by;
  if (calls == 1 || (serial != 0 && serial == timed_.serial())) {
    meta = sampled_by = OperationMeta::Unpack(meta_.load());
  } else {
    // This is an earlier call of a group, and its number is no longer known. So it is sampled like
    // a launch of several calls.
    sampled_by = timed_.NextOfGroup();
  }
  const uint64_t bus_bytes = BusBytesOf(communicator, meta.op, bytes);
  // The group's other calls are launched with the kernels; two or more of them as a group.
  if (calls == 1) {
    TakeCalls();
  } else if (calls > 1) {
    const auto take = [](Relaxed<uint64_t>& cell, uint64_t amount) {
      const uint64_t value = cell.load();
      cell.store(value - std::min(value, amount));
    };
    unreported_.AddCopy();
    take(bytes_, bytes);
    take(bus_bytes_, bus_bytes);
  } else if (unreported_.IsLastGroup(pending())) {
    unreported_.AddCopy();  // behind its group's kernels
  }
  if (!instruments.samples()) return kNoPair;
  if (!ShouldTime(instruments, communicator, sampled_by) || !instruments.sampler.Spend()) {
    return kNoPair;
  }
  const uint32_t pair = instruments.stream_timer->BeginTiming(timer_, event.stream);
  if (pair == kNoPair) return kNoPair;
  timed_.Carry(pair, 1, meta, bytes, bus_bytes);
  // This event is both the launch and the report.
  timed_.NoteTimed(serial);
  timed_.NoteReported(serial);
  return pair;
}

// ---- operations ---------------------------------------------------------------------------------

void LaunchFollower::NoteOfGroup(const Communicator& communicator, NameId op, uint64_t bytes) {
  const uint32_t pair = pair_.load();
  if (pair < kTimedPairs) timed_.AddSeen(pair, bytes, BusBytesOf(communicator, op, bytes));
}

}  // namespace nccl_pulse
