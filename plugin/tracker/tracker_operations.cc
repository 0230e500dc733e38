// Tracker, the part that follows operations: Coll and P2p, and the place that each has.
#include "metrics/shared_bytes.h"
#include "plugin/tracker/tracker.h"
#include "plugin/tracker/uncounted_call.h"

namespace nccl_pulse {
namespace {

// One operation in this many has the cost of its callback measured.
constexpr uint64_t kCostSampling = 1024;

}  // namespace

LaunchFate Tracker::FateOf(Communicator& communicator, NameId op, uint64_t bytes, uint64_t call) {
  // Relaxed: see PendingLaunch. An operation that NCCL reports from another thread (a CUDA host
  // callback) may be told the fate of another launch; only the reason is then wrong, for the one
  // that a launch times alone has a call with a ticket, and is known by its serial.
  PendingLaunch& pending = communicator.launching->pending;
  const auto fate = static_cast<LaunchFate>(pending.fate.load(std::memory_order_relaxed));
  if (__builtin_expect(call != 0, 0) && IsOwn(call, TicketKind::kApiCall)) {
    if (Ticket::Child(call) != 0) return LaunchFate::kCaptured;
    const uint32_t serial = Ticket::Generation(call);
    pending.reported_serial.store(serial, std::memory_order_relaxed);
    if (WasTimed(pending, serial)) return LaunchFate::kTimed;  // or lost there
  }
  if (__builtin_expect(fate == LaunchFate::kTimed, 0)) return LaunchFate::kNotSampled;
  if (__builtin_expect(fate == LaunchFate::kGrouped, 0)) NoteOfGroup(communicator, op, bytes);
  return fate;
}

uint64_t Tracker::StartOperation(uint64_t context, const OperationEvent& event) {
  Communicator* const found = FindContext(context);
  if (__builtin_expect(found == nullptr, 0)) return 0;
  Communicator& communicator = *found;
  const uint64_t now_ns = clock_.NowNs();
  LaneWriter writer = ClaimLane(communicator, LaneRole::kLaunch);
  if (__builtin_expect(!writer.ok(), 0)) {
    Ignore(IgnoredReason::kNoRoom);
    return 0;
  }
  CountUncounted(*communicator.record, writer);
  const CachedName op = names_.Find(event.func);
  const CachedName datatype = names_.Find(event.datatype);
  const uint64_t bytes = event.count * datatype.element_bytes;
  const auto size_class = static_cast<uint32_t>(SizeClassOf(bytes));
  if (__builtin_expect(event.counts_as_call, 0)) {
    if (!communicator.identity_known.load(std::memory_order_relaxed)) {
      LearnIdentity(communicator, event);
    }
    writer.Count(SeriesKey::Pack(SeriesKind::kCalls, op.id, size_class, datatype.id, 0), 1, bytes);
  }

  uint32_t untimed = 0;  // UntimedReason, 0: none, or not yet
  if (__builtin_expect(timing_ != TimingMode::kKernel, 1)) {
    untimed = static_cast<uint32_t>(FateOf(communicator, op.id, bytes, event.parent));
  } else if (!event.is_collective && event.peer == event.rank) {
    // The device counts a send to oneself, the host does not: from here on NCCL attributes this
    // communicator's GPU times to the wrong operations (docs/nccl-profiler-api.md#kernel-channels).
    Distrust(communicator, TrustState::kSelfSend);
    untimed = static_cast<uint32_t>(UntimedReason::kInvisible);
  }
  if (__builtin_expect(event.is_collective, 1)) {
    writer.CountSequenced(SeriesKey::Pack(SeriesKind::kAlgorithm, op.id, untimed,
                                          names_.Find(event.algo).id, names_.Find(event.proto).id),
                          event.sequence + 1);
  } else if (untimed != 0) {
    CountUntimed(writer, op.id, static_cast<UntimedReason>(untimed));
  }

  uint64_t handle = 0;
  if (__builtin_expect(timing_ != TimingMode::kOff, 1)) {
    // More channels than there are: not set (NCCL 2.28 and later towards a plugin of API v4).
    const uint8_t channels = event.channels <= kMaxChannels ? event.channels : 0;
    const OperationMeta meta{op.id, static_cast<uint8_t>(size_class), channels,
                             timing_ != TimingMode::kKernel || untimed != 0,
                             static_cast<uint32_t>(event.sequence)};
    const bool captured = __builtin_expect(event.parent != 0, 0) &&
                          IsOwn(event.parent, TicketKind::kApiCall) &&
                          Ticket::Child(event.parent) != 0;
    handle = ClaimSlot(communicator, writer, {meta.Pack(), bytes, now_ns, captured});
  }
  // An operation's enqueue follows its launch by microseconds, so one reading of the clock serves
  // both.
  Lane& lane = writer.lane();
  lane.last_launch_ns.store(now_ns, std::memory_order_relaxed);  // orders nothing
  const uint64_t count = AddToCell(lane.callbacks[static_cast<int>(CallbackKind::kOperation)], 1);
  if (__builtin_expect(count % kCostSampling == 0, 0)) CountCost(now_ns);
  return handle;
}

void Tracker::CountCost(uint64_t begin_ns) {
  SegmentHeader& header = segment_.header();
  // Relaxed: counters order nothing.
  header.sampled_callback_ns.fetch_add(clock_.NowNs() - begin_ns, std::memory_order_relaxed);
  header.sampled_callbacks.fetch_add(1, std::memory_order_relaxed);
}

uint64_t Tracker::ClaimSlot(Communicator& communicator, LaneWriter& lane,
                            const NewOperation& operation) {
  // Relaxed: a ticket number; the slot's word orders everything else.
  const uint64_t number =
      communicator.launching->pending.next_operation.fetch_add(1, std::memory_order_relaxed);
  const auto index = static_cast<uint32_t>(number % kOperationSlots);
  OperationSlot& slot = communicator.operations[index];
  // Relaxed: of the fields of that generation nothing is read here.
  uint64_t word = slot.word.load(std::memory_order_relaxed);
  // Its last operation leaves nothing to say, as in SettleUsedSlot, and nobody is writing it.
  const bool is_unused =
      timing_ != TimingMode::kKernel && (word & (SlotWord::kClaimed | SlotWord::kStartedMask)) == 0;
  uint64_t claimed = SlotWord::NextGeneration(word);
  // Acquire and release: as in SettleUsedSlot.
  if (__builtin_expect(!is_unused || !slot.word.compare_exchange_strong(
                                         word, claimed | SlotWord::kClaimed,
                                         std::memory_order_acq_rel, std::memory_order_relaxed),
                       0)) {
    uint64_t settled;
    if (!SettleUsedSlot(communicator, index, lane, &settled)) {
      const OperationMeta meta = OperationMeta::Unpack(operation.meta);
      if (!meta.untimed) CountUntimed(lane, meta.op, UntimedReason::kLost);
      return 0;
    }
    claimed = settled;
  }

  const uint32_t generation = SlotWord::Generation(claimed);
  // Release: who finds a new field (FollowOperations) then finds the place claimed. No instruction
  // on x86-64.
  std::atomic_thread_fence(std::memory_order_release);
  // Relaxed: published by the store of the word.
  slot.last_stop.store(LastStop::Pack(generation, 0), std::memory_order_relaxed);
  slot.enqueue_ns.store(operation.enqueue_ns, std::memory_order_relaxed);
  slot.bytes.store(operation.bytes, std::memory_order_relaxed);
  slot.meta.store(operation.meta, std::memory_order_relaxed);
  slot.stopped_proxies.store(0, std::memory_order_relaxed);
  slot.word.store(claimed | SlotWord::kOpen | SlotWord::kEnqueued |
                      (operation.captured ? SlotWord::kCaptured : 0),
                  std::memory_order_release);
  const uint64_t ticket = Ticket::OfOperation(communicator.first_ticket, generation, index);
  // Nearly all are stopped at once: then the place needs no second swap. Relaxed: see
  // PendingLaunch; should two threads meet here, a stop is taken for a repeated one.
  std::atomic<uint64_t>& unstopped = communicator.launching->pending.unstopped;
  const uint64_t other = unstopped.load(std::memory_order_relaxed);
  if (__builtin_expect(other != 0, 0)) ExpectStop(communicator, other);
  unstopped.store(ticket, std::memory_order_relaxed);
  return ticket;
}

bool Tracker::SettleUsedSlot(Communicator& communicator, uint32_t index, LaneWriter& lane,
                             uint64_t* claimed) {
  OperationSlot& slot = communicator.operations[index];
  uint64_t word = slot.word.load(std::memory_order_acquire);  // sees the fields of that generation
  OperationState old;
  bool settles = false;
  do {
    // Its claimer was taken off the CPU, and all other places have been claimed since: writing the
    // fields under it would mix two operations.
    if ((word & SlotWord::kClaimed) != 0) {
      Ignore(IgnoredReason::kNoRoom);
      return false;
    }
    // An operation without children leaves nothing to say, unless GPU times were expected of it.
    settles = (word & SlotWord::kOpen) != 0 &&
              (SlotWord::Started(word) > 0 || timing_ == TimingMode::kKernel);
    if (settles) old = ReadSlot(slot, word);
    *claimed = SlotWord::NextGeneration(word);
    // Release: the reads of the old fields stay before the swap. Acquire: nor do the stores that
    // follow move up. The loop ends: each failure means that a child of an operation 440 calls old
    // has just advanced.
  } while (!slot.word.compare_exchange_weak(word, *claimed | SlotWord::kClaimed,
                                            std::memory_order_acq_rel, std::memory_order_acquire));
  if (settles) Settle(communicator, index, old, lane);
  return true;
}

void Tracker::ExpectStop(Communicator& communicator, uint64_t ticket) {
  OperationSlot& slot = communicator.operations[Ticket::Operation(ticket)];
  uint64_t word = slot.word.load(std::memory_order_relaxed);  // only the word itself is used
  do {
    if (SlotWord::Generation(word) != Ticket::Generation(ticket)) return;
  } while (!slot.word.compare_exchange_weak(word, word & ~SlotWord::kEnqueued,
                                            std::memory_order_relaxed));
}

void Tracker::StopOperation(const OperationRef& ref) {
  uint64_t word = ref.slot->word.load(std::memory_order_relaxed);  // only the word itself is used
  do {
    if (SlotWord::Generation(word) != ref.generation) {
      return Ignore(IgnoredReason::kStaleHandle);
    }
    if ((word & SlotWord::kEnqueued) != 0) return Ignore(IgnoredReason::kRepeatedStop);
  } while (!ref.slot->word.compare_exchange_weak(word, word | SlotWord::kEnqueued,
                                                 std::memory_order_relaxed));
  // A small operation may be complete before NCCL says that it was enqueued; only after finalize is
  // that too late. Relaxed: the place may have a new owner by now, then this one goes uncounted.
  if ((word & SlotWord::kOpen) == 0 &&
      ref.communicator->context.load(std::memory_order_relaxed) == 0) {
    Ignore(IgnoredReason::kAfterClose);
  }
}

bool Tracker::IsOpen(const OperationRef& ref) {
  const uint64_t word = ref.slot->word.load(std::memory_order_relaxed);  // only the word is used
  if (SlotWord::Generation(word) != ref.generation) {
    Ignore(IgnoredReason::kStaleHandle);
    return false;
  }
  if ((word & SlotWord::kOpen) == 0) {
    Ignore(IgnoredReason::kAfterClose);
    return false;
  }
  return true;
}

void Tracker::LearnIdentity(Communicator& communicator, const OperationEvent& event) {
  if (event.comm_hash == 0) return;
  bool expected = false;
  // One thread copies. Relaxed: readers are told by the identity's own atomics.
  if (!communicator.identity_known.compare_exchange_strong(expected, true,
                                                           std::memory_order_relaxed)) {
    return;
  }
  communicator.rank.store(event.rank, std::memory_order_relaxed);
  WriterOf(communicator).Learn(event.comm_hash, event.comm_name, event.rank);
}

}  // namespace nccl_pulse
