#include "plugin/tracker.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>

#include "metrics/shared_bytes.h"
#include "plugin/bus_bytes.h"

namespace nccl_pulse {
namespace {

// A finalized communicator's numbers stay readable for this long, unless its place is needed.
constexpr uint64_t kKeepFinalizedNs = 600ULL * 1000000000ULL;

// One operation in this many has the cost of its callback measured.
constexpr uint64_t kCostSampling = 1024;

// A communicator is distrusted when so many of its last 64 multi-channel operations failed their
// checks. Sound ones fail in short bursts when the GPU laps the poller (9 in one recorded run,
// whose launches carry five operations each); drifted ones keep failing.
constexpr int kFailuresToDistrust = 16;

// A callback holds a lane for a fraction of a microsecond, unless its thread was taken off the CPU.
// So long do init and finalize wait for one.
constexpr int kLaneAttempts = 50;
constexpr timespec kLanePause{0, 100000};

constexpr uint64_t kDeltaBits = 52;
constexpr uint64_t kDeltaMask = (uint64_t{1} << kDeltaBits) - 1;

uint64_t TagLastStop(uint32_t generation, uint64_t delta_ns) {
  return uint64_t{generation & 0xfff} << kDeltaBits | std::min(delta_ns, kDeltaMask);
}

void* AllocatePopulated(size_t bytes) {
  // Populated now: a callback must not fault.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

Tracker::Tracker(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver,
                 int32_t pid, uint32_t process_tag)
    : segment_(segment),
      clock_(clock),
      timing_(timing),
      pid_(pid),
      process_tag_(process_tag & ((1u << Ticket::kProcessBits) - 1)),
      names_(segment.names()),
      stream_timer_(driver != nullptr && timing != TimingMode::kOff
                        ? std::make_unique<StreamTimer>(*driver)
                        : nullptr) {
  const bool times_streams = stream_timer_ != nullptr && timing_ == TimingMode::kAuto;
  segment_.header().sampling_exponent.store(times_streams ? sampler_.exponent() : -1,
                                            std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMaxCommunicators; ++i) {
    slots_[i].index = i;
    slots_[i].record = &segment_.record(i);
  }
}

// ---- finding what an event belongs to
// ---------------------------------------------------------------

void Tracker::IgnoreContext(uint64_t context) {
  const bool ours =
      Ticket::Issuer(context) == Ticket::MakeIssuer(process_tag_, TicketKind::kContext);
  Ignore(ours ? IgnoredReason::kStaleContext : IgnoredReason::kForeignContext);
}

Tracker::OperationState Tracker::ReadSlot(const OperationSlot& slot, uint64_t word) {
  // Relaxed: `word` was read with acquire, and the caller's swap of it proves afterwards that no
  // new operation had taken the slot while these were read.
  return {word, slot.last_stop.load(std::memory_order_relaxed),
          slot.enqueue_ns.load(std::memory_order_relaxed),
          slot.bytes.load(std::memory_order_relaxed),
          OperationMeta::Unpack(slot.meta.load(std::memory_order_relaxed))};
}

// ---- calls and launches
// -----------------------------------------------------------------------------

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

// ---- operations
// -------------------------------------------------------------------------------------

uint64_t Tracker::StartOperation(uint64_t context, const OperationEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return 0;
  const uint64_t now_ns = clock_.NowNs();
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
  const auto size_class = static_cast<uint32_t>(SizeClassOf(bytes));
  if (event.counts_as_call) {
    if (!communicator->identity_known.load(std::memory_order_relaxed)) {
      LearnIdentity(*communicator, event);
    }
    lane.Count(SeriesKey::Pack(SeriesKind::kCalls, op.id, size_class, datatype.id, 0), 1, bytes);
  }
  if (event.is_collective) {
    lane.Count(SeriesKey::Pack(SeriesKind::kAlgorithm, op.id, 0, names_.Find(event.algo).id,
                               names_.Find(event.proto).id),
               1, 0);
    lane.Set(SeriesKey::Pack(SeriesKind::kSequence, op.id, 0, 0, 0), event.sequence + 1);
  }

  // More channels than there are: not set (NCCL 2.28 and later towards a plugin of API v4).
  const uint8_t channels = event.channels <= kMaxChannels ? event.channels : 0;
  OperationMeta meta{op.id, static_cast<uint8_t>(size_class), channels, false, 0};
  if (timing_ != TimingMode::kKernel) {
    CountFate(*communicator, lane, op.id, bytes, event.parent);
    meta.untimed = true;
  } else if (!event.is_collective && event.peer == event.rank) {
    // The device counts a send to oneself, the host does not: from here on NCCL attributes this
    // communicator's GPU times to the wrong operations (fact sheet, 2.8).
    Distrust(*communicator, TrustState::kSelfSend);
    CountUntimed(lane, op.id, UntimedReason::kInvisible);
    meta.untimed = true;
  }

  uint64_t handle = 0;
  if (timing_ != TimingMode::kOff) {
    meta.call_number = static_cast<uint32_t>(event.sequence);
    handle = ClaimSlot(*communicator, lane, meta, bytes, now_ns);
  }
  // An operation's enqueue follows its launch by microseconds, so one reading of the clock serves
  // both.
  lane.lane().last_launch_ns.store(now_ns, std::memory_order_relaxed);  // orders nothing
  Cell& callbacks = lane.lane().callbacks[static_cast<int>(CallbackKind::kOperation)];
  AddToCell(callbacks, 1);
  if (callbacks.load(std::memory_order_relaxed) % kCostSampling == 0) {
    SegmentHeader& header = segment_.header();
    header.sampled_callback_ns.fetch_add(clock_.NowNs() - now_ns, std::memory_order_relaxed);
    header.sampled_callbacks.fetch_add(1, std::memory_order_relaxed);
  }
  return handle;
}

void Tracker::StartCopyEngineOperation(uint64_t context, const OperationEvent& event) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return;
  LaneWriter lane(segment_, *communicator->record,
                  communicator->record_generation.load(std::memory_order_relaxed),
                  LaneRole::kLaunch);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  const NameId op = names_.Find(event.func).id;
  AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kOperation)], 1);
  lane.Count(SeriesKey::Pack(SeriesKind::kAlgorithm, op, 0, names_.Find(event.algo).id, kNoName), 1,
             0);
  CountUntimed(
      lane, op,
      timing_ == TimingMode::kKernel ? UntimedReason::kInvisible : UntimedReason::kNotTimed);
}

uint64_t Tracker::ClaimSlot(Communicator& communicator, LaneWriter& lane, const OperationMeta& meta,
                            uint64_t bytes, uint64_t now_ns) {
  // Relaxed: a ticket number; the slot's word orders everything else.
  const uint64_t number = communicator.next_operation.fetch_add(1, std::memory_order_relaxed);
  const auto index = static_cast<uint32_t>(number % kOperationSlots);
  OperationSlot& slot = communicator.operations[index];
  uint64_t word = slot.word.load(std::memory_order_acquire);  // sees the fields of that generation
  OperationState old;
  uint32_t generation;
  do {
    // Its claimer was taken off the CPU, and all other places have been claimed since: writing the
    // fields under it would mix two operations.
    if ((word & SlotWord::kClaimed) != 0) {
      Ignore(IgnoredReason::kNoRoom);
      if (!meta.untimed) CountUntimed(lane, meta.op, UntimedReason::kLost);
      return 0;
    }
    if ((word & SlotWord::kOpen) != 0) old = ReadSlot(slot, word);
    generation = (SlotWord::Generation(word) + 1) & Ticket::kGenerationMask;
    // Release: the reads of the old fields stay before the swap. Acquire: nor do the stores below
    // move up. The loop ends: each failure means that a child of an operation 448 calls old has
    // just advanced.
  } while (!slot.word.compare_exchange_weak(word,
                                            SlotWord::OfGeneration(generation) | SlotWord::kClaimed,
                                            std::memory_order_acq_rel, std::memory_order_acquire));
  // An operation without children leaves nothing to say, unless GPU times were expected of it.
  const bool may_count = SlotWord::Started(word) > 0 || timing_ == TimingMode::kKernel;
  if ((word & SlotWord::kOpen) != 0 && may_count) Settle(communicator, index, old, lane);

  // Relaxed: published by the store of the word.
  slot.last_stop.store(TagLastStop(generation, 0), std::memory_order_relaxed);
  slot.enqueue_ns.store(now_ns, std::memory_order_relaxed);
  slot.bytes.store(bytes, std::memory_order_relaxed);
  slot.meta.store(meta.Pack(), std::memory_order_relaxed);
  slot.stopped_proxies.store(0, std::memory_order_relaxed);
  slot.word.store(SlotWord::OfGeneration(generation) | SlotWord::kOpen, std::memory_order_release);
  return Ticket::Pack(process_tag_, TicketKind::kOperation, 0, generation, index,
                      communicator.index);
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

// ---- network
// ----------------------------------------------------------------------------------------

uint64_t Tracker::StartProxyOp(uint64_t context, const ProxyOpEvent& event) {
  // First of all: context and parent of another process' operation are that process' own.
  if (event.pid != pid_) {
    Ignore(IgnoredReason::kForeignProcess);
    return 0;
  }
  if (event.parent == 0) return 0;  // an operation that was not tracked
  if (FindContext(context) == nullptr) return 0;
  const OperationRef ref = FindOperation(event.parent, TicketKind::kOperation);
  if (ref.communicator == nullptr) {
    Ignore(IgnoredReason::kForeignHandle);
    return 0;
  }
  uint64_t word = ref.slot->word.load(std::memory_order_relaxed);  // only the word itself is used
  do {
    if (SlotWord::Generation(word) != ref.generation) {
      Ignore(IgnoredReason::kStaleHandle);
      return 0;
    }
    if ((word & SlotWord::kOpen) == 0 || SlotWord::Started(word) == 0xffff) {
      Ignore((word & SlotWord::kOpen) == 0 ? IgnoredReason::kAfterClose : IgnoredReason::kNoRoom);
      return 0;
    }
    // Relaxed: the count carries no other data.
  } while (!ref.slot->word.compare_exchange_weak(word, word + SlotWord::kOneStarted,
                                                 std::memory_order_relaxed));
  return ChildTicket(ref, TicketKind::kProxyOp,
                     std::min(SlotWord::Started(word), Ticket::kMaxChild));
}

void Tracker::StopProxyOp(const OperationRef& ref) {
  const uint64_t now_ns = clock_.NowNs();
  OperationSlot& slot = *ref.slot;
  uint64_t word = slot.word.load(std::memory_order_acquire);  // enqueue_ns is of this generation
  if (SlotWord::Generation(word) != ref.generation) return Ignore(IgnoredReason::kStaleHandle);
  if ((word & SlotWord::kOpen) == 0) return Ignore(IgnoredReason::kAfterClose);
  if (ref.child >= SlotWord::Started(word)) return Ignore(IgnoredReason::kStopWithoutStart);
  if (ref.child < 64) {
    const uint64_t bit = uint64_t{1} << ref.child;
    // Load and store, not a read-modify-write. With PXN two proxies of one process may stop
    // ProxyOps of one operation at once; what they lose is a bit set, and with it that handle's
    // second stop is not seen. No first stop is ever taken for a second.
    const uint64_t stopped = slot.stopped_proxies.load(std::memory_order_relaxed);
    if ((stopped & bit) != 0) return Ignore(IgnoredReason::kRepeatedStop);
    slot.stopped_proxies.store(stopped | bit, std::memory_order_relaxed);
  }
  const uint64_t enqueue_ns = slot.enqueue_ns.load(std::memory_order_relaxed);
  const uint64_t delta_ns = now_ns > enqueue_ns ? now_ns - enqueue_ns : 0;
  const uint64_t stop = TagLastStop(ref.generation, delta_ns);
  const uint64_t previous = slot.last_stop.load(std::memory_order_relaxed);
  if ((previous >> kDeltaBits) != (stop >> kDeltaBits) || previous < stop) {
    slot.last_stop.store(stop, std::memory_order_relaxed);  // released by the swap below
  }
  do {
    if (SlotWord::Generation(word) != ref.generation || (word & SlotWord::kOpen) == 0) {
      return Ignore(IgnoredReason::kAfterClose);
    }
    if (SlotWord::Stopped(word) >= SlotWord::Started(word)) {
      return Ignore(IgnoredReason::kRepeatedStop);
    }
    // Release: whoever sees this stop counted sees its time.
  } while (!slot.word.compare_exchange_weak(word, word + SlotWord::kOneStopped,
                                            std::memory_order_release, std::memory_order_relaxed));
}

// ---- GPU timestamps
// ---------------------------------------------------------------------------------

uint64_t Tracker::StartKernelChannel(uint64_t context, const KernelChannelEvent& event) {
  if (timing_ != TimingMode::kKernel) {
    Ignore(IgnoredReason::kUnrequestedType);
    return 0;
  }
  if (event.parent == 0) return 0;  // an operation that was not tracked
  const OperationRef ref = FindOperation(event.parent, TicketKind::kOperation);
  if (ref.communicator == nullptr || event.channel >= kMaxChannels) {
    Ignore(ref.communicator == nullptr ? IgnoredReason::kForeignHandle : IgnoredReason::kNoRoom);
    return 0;
  }
  Communicator& communicator = *ref.communicator;
  if (communicator.context.load(std::memory_order_acquire) != context) {  // see FindContext
    FindContext(context);                                                 // counts it by its reason
    return 0;
  }
  uint64_t word = ref.slot->word.load(std::memory_order_acquire);  // meta is of this generation
  if (SlotWord::Generation(word) != ref.generation) {
    Ignore(IgnoredReason::kStaleHandle);
    return 0;
  }
  if ((word & SlotWord::kOpen) == 0) {
    Ignore(IgnoredReason::kAfterClose);
    return 0;
  }
  KernelTimes& times = communicator.kernel_times[ref.operation];
  // All relaxed: this thread is the only writer (communicator.h); who settles reads them after a
  // swap of the word, which FinishKernel or the kKernelSeen swap below release.
  uint64_t tag = times.tag.load(std::memory_order_relaxed);
  if (!KernelTimes::IsOf(tag, ref.generation)) {
    const OperationMeta meta =
        OperationMeta::Unpack(ref.slot->meta.load(std::memory_order_relaxed));
    tag = KernelTimes::MakeTag(ref.generation, meta.channels);
    times.first_start_ns.store(UINT64_MAX, std::memory_order_relaxed);
    times.last_start_ns.store(0, std::memory_order_relaxed);
    times.first_stop_ns.store(UINT64_MAX, std::memory_order_relaxed);
    times.last_stop_ns.store(0, std::memory_order_relaxed);
    times.mask_a.store(0, std::memory_order_relaxed);
    times.mask_b.store(0, std::memory_order_relaxed);
    times.tag.store(tag, std::memory_order_relaxed);
    do {
      if (SlotWord::Generation(word) != ref.generation || (word & SlotWord::kOpen) == 0) {
        Ignore(IgnoredReason::kAfterClose);
        return 0;
      }
    } while (!ref.slot->word.compare_exchange_weak(
        word, word | SlotWord::kKernelSeen, std::memory_order_release, std::memory_order_relaxed));
  }
  const uint64_t bit = uint64_t{1} << event.channel;
  const uint64_t mask_a = times.mask_a.load(std::memory_order_relaxed);
  const uint64_t mask_b = times.mask_b.load(std::memory_order_relaxed);
  const uint64_t handle = ChildTicket(ref, TicketKind::kKernelChannel, event.channel);
  if (((mask_a | mask_b) & bit) != 0) return handle;  // the channel's first start counts
  times.mask_a.store(mask_a | bit, std::memory_order_relaxed);
  if (event.gpu_ns == 0) return handle;
  if (event.gpu_ns < times.first_start_ns.load(std::memory_order_relaxed)) {
    times.first_start_ns.store(event.gpu_ns, std::memory_order_relaxed);
  }
  if (event.gpu_ns > times.last_start_ns.load(std::memory_order_relaxed)) {
    times.last_start_ns.store(event.gpu_ns, std::memory_order_relaxed);
  }
  std::atomic<uint64_t>& previous = communicator.kernel_trust->last_start_ns[event.channel];
  if (event.gpu_ns < previous.load(std::memory_order_relaxed)) {
    times.tag.store(tag | KernelTimes::kBackwards, std::memory_order_relaxed);
  }
  // Also when it is older: one timestamp from the future must not condemn all that follow it.
  previous.store(event.gpu_ns, std::memory_order_relaxed);
  return handle;
}

void Tracker::RecordKernelStop(uint64_t bits, const uint64_t* gpu_ns) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  const OperationRef ref = FindOperation(bits, TicketKind::kKernelChannel);
  if (ref.communicator == nullptr || ref.communicator->kernel_times == nullptr ||
      ref.child >= kMaxChannels) {
    return Ignore(IgnoredReason::kForeignHandle);
  }
  if (gpu_ns == nullptr) return Ignore(IgnoredReason::kMissingArgument);
  KernelTimes& times = ref.communicator->kernel_times[ref.operation];
  // Relaxed: see StartKernelChannel.
  const uint64_t tag = times.tag.load(std::memory_order_relaxed);
  if (!KernelTimes::IsOf(tag, ref.generation)) return Ignore(IgnoredReason::kStaleHandle);
  const uint64_t bit = uint64_t{1} << ref.child;
  const uint64_t mask_a = times.mask_a.load(std::memory_order_relaxed);
  const uint64_t mask_b = times.mask_b.load(std::memory_order_relaxed);
  if ((mask_b & bit) != 0) return Ignore(IgnoredReason::kRepeatedStop);
  if ((mask_a & bit) == 0) return Ignore(IgnoredReason::kStopWithoutStart);
  if (!IsOpen(ref)) return;
  times.mask_b.store(mask_b | bit, std::memory_order_relaxed);
  if (*gpu_ns < times.first_stop_ns.load(std::memory_order_relaxed)) {
    times.first_stop_ns.store(*gpu_ns, std::memory_order_relaxed);
  }
  if (*gpu_ns > times.last_stop_ns.load(std::memory_order_relaxed)) {
    times.last_stop_ns.store(*gpu_ns, std::memory_order_relaxed);
  }
}

void Tracker::StopKernelChannel(const OperationRef& ref) {
  if (ref.communicator->kernel_times == nullptr || ref.child >= kMaxChannels) {
    return Ignore(IgnoredReason::kForeignHandle);
  }
  KernelTimes& times = ref.communicator->kernel_times[ref.operation];
  // Relaxed: see StartKernelChannel.
  uint64_t tag = times.tag.load(std::memory_order_relaxed);
  if (!KernelTimes::IsOf(tag, ref.generation)) return Ignore(IgnoredReason::kStaleHandle);
  const uint64_t bit = uint64_t{1} << ref.child;
  uint64_t mask_a = times.mask_a.load(std::memory_order_relaxed);
  uint64_t mask_b = times.mask_b.load(std::memory_order_relaxed);
  if ((mask_a & bit) == 0) {
    return Ignore((mask_b & bit) != 0 ? IgnoredReason::kRepeatedStop
                                      : IgnoredReason::kStopWithoutStart);
  }
  if (!IsOpen(ref)) return;
  if ((mask_b & bit) == 0) tag |= KernelTimes::kTimeMissing;
  tag += KernelTimes::kOneStopped;
  times.tag.store(tag, std::memory_order_relaxed);
  mask_a &= ~bit;
  mask_b |= bit;
  times.mask_a.store(mask_a, std::memory_order_relaxed);
  times.mask_b.store(mask_b, std::memory_order_relaxed);
  // 0 channels: NCCL did not say how many (CollNet, multi-node NVLS); then the settling decides.
  if (KernelTimes::Stopped(tag) == KernelTimes::Channels(tag)) FinishKernel(ref, times, tag);
}

void Tracker::FinishKernel(const OperationRef& ref, KernelTimes& times, uint64_t tag) {
  Communicator& communicator = *ref.communicator;
  OperationSlot& slot = *ref.slot;
  const uint64_t now_ns = clock_.NowNs();
  LaneWriter lane(segment_, *communicator.record,
                  communicator.record_generation.load(std::memory_order_relaxed),
                  LaneRole::kProgress);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  uint64_t word = slot.word.load(std::memory_order_acquire);  // the fields are of this generation
  OperationState state;
  bool settled;
  do {
    if (SlotWord::Generation(word) != ref.generation || (word & SlotWord::kOpen) == 0) {
      return Ignore(IgnoredReason::kAfterClose);
    }
    state = ReadSlot(slot, word);
    // Without network traffic this is the end; with it, the ProxyOps decide when.
    settled = SlotWord::Started(word) == 0;
    // Acquire and release: the fields were read before, and the times are seen by who settles.
  } while (!slot.word.compare_exchange_weak(
      word, (word | SlotWord::kKernelDone) & (settled ? ~SlotWord::kOpen : ~uint64_t{0}),
      std::memory_order_acq_rel, std::memory_order_acquire));
  // Start, state and stop of each channel.
  AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kKernel)],
            uint64_t{3} * KernelTimes::Channels(tag));
  if (!state.meta.untimed) {
    CountKernelTime(communicator, state.meta, state.bytes, times, tag, now_ns, lane);
  }
  if (settled) {
    const uint64_t duration_ns = now_ns > state.enqueue_ns ? now_ns - state.enqueue_ns : 0;
    CountLatency(
        communicator, lane, LatencyKind::kCompletionKernel, state.meta, state.bytes,
        BusBytes(state.meta.op, state.bytes, communicator.nranks.load(std::memory_order_relaxed)),
        duration_ns, now_ns);
  }
}

void Tracker::CountKernelTime(Communicator& communicator, const OperationMeta& meta, uint64_t bytes,
                              const KernelTimes& times, uint64_t tag, uint64_t now_ns,
                              LaneWriter& lane) {
  if (!IsTrusted(communicator)) return CountUntimed(lane, meta.op, UntimedReason::kUntrusted);
  if ((tag & KernelTimes::kTimeMissing) != 0) {
    return CountUntimed(lane, meta.op, UntimedReason::kLost);
  }
  // Relaxed: written by this thread, or released by the swap that the settler made.
  const uint64_t first_start_ns = times.first_start_ns.load(std::memory_order_relaxed);
  const uint64_t last_start_ns = times.last_start_ns.load(std::memory_order_relaxed);
  const uint64_t first_stop_ns = times.first_stop_ns.load(std::memory_order_relaxed);
  const uint64_t last_stop_ns = times.last_stop_ns.load(std::memory_order_relaxed);
  // All channels of a collective run at the same time. This also says that none stops before it
  // starts.
  const bool overlap = last_start_ns <= first_stop_ns;
  const bool backwards = (tag & KernelTimes::kBackwards) != 0;
  if (KernelTimes::Stopped(tag) >= 2) {
    std::atomic<uint64_t>& history = communicator.kernel_trust->failed_history;
    const uint64_t recent =
        history.load(std::memory_order_relaxed) << 1 | (overlap && !backwards ? 0 : 1);
    history.store(recent, std::memory_order_relaxed);
    if (__builtin_popcountll(recent) >= kFailuresToDistrust) {
      Distrust(communicator, TrustState::kChecksFailed);
    }
  }
  if (!overlap) return CountUntimed(lane, meta.op, UntimedReason::kOverlap);
  if (backwards) return CountUntimed(lane, meta.op, UntimedReason::kBackwards);
  CountLatency(communicator, lane, LatencyKind::kDurationKernel, meta, bytes,
               BusBytes(meta.op, bytes, communicator.nranks.load(std::memory_order_relaxed)),
               last_stop_ns - first_start_ns, now_ns);
}

bool Tracker::IsTrusted(const Communicator& communicator) const {
  return communicator.record->kernel_trust.load(std::memory_order_relaxed) ==
         static_cast<uint32_t>(TrustState::kTrusted);
}

void Tracker::Distrust(Communicator& communicator, TrustState why) {
  uint32_t expected = static_cast<uint32_t>(TrustState::kTrusted);
  // The first reason stays. Relaxed: a flag that carries no other data.
  communicator.record->kernel_trust.compare_exchange_strong(expected, static_cast<uint32_t>(why),
                                                            std::memory_order_relaxed);
}

// ---- settling
// ---------------------------------------------------------------------------------------

void Tracker::Settle(Communicator& communicator, uint32_t operation, const OperationState& state,
                     LaneWriter& lane) {
  const uint32_t started = SlotWord::Started(state.word);
  const uint32_t stopped = SlotWord::Stopped(state.word);
  const bool kernel_seen = (state.word & SlotWord::kKernelSeen) != 0;
  const bool kernel_done = (state.word & SlotWord::kKernelDone) != 0;
  bool uncompleted = false;
  if (started > 0) {
    AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kProxy)], started + stopped);
    const uint64_t tag = state.last_stop >> kDeltaBits;
    if (started == stopped && tag == (SlotWord::Generation(state.word) & 0xfff)) {
      const uint64_t duration_ns = state.last_stop & kDeltaMask;
      CountLatency(
          communicator, lane, LatencyKind::kCompletionProxy, state.meta, state.bytes,
          BusBytes(state.meta.op, state.bytes, communicator.nranks.load(std::memory_order_relaxed)),
          duration_ns, state.enqueue_ns + duration_ns);
    } else {
      uncompleted = true;
    }
  } else {
    uncompleted = kernel_seen && !kernel_done;
  }
  if (timing_ == TimingMode::kKernel && !kernel_done && !state.meta.untimed) {
    const KernelTimes& times = communicator.kernel_times[operation];
    // Acquire came with the swap of the word.
    const uint64_t tag = times.tag.load(std::memory_order_relaxed);
    const uint64_t mask_a = times.mask_a.load(std::memory_order_relaxed);
    if (!kernel_seen) {
      CountUntimed(lane, state.meta.op, UntimedReason::kInvisible);
    } else if (state.meta.channels == 0 && mask_a == 0 &&
               KernelTimes::IsOf(tag, SlotWord::Generation(state.word))) {
      // How many channels there are was not known; all that came have stopped.
      CountKernelTime(communicator, state.meta, state.bytes, times, tag, clock_.NowNs(), lane);
      uncompleted = started > 0 && uncompleted;
    } else {
      CountUntimed(lane, state.meta.op, UntimedReason::kLost);
    }
  }
  if (uncompleted)
    lane.Count(SeriesKey::Pack(SeriesKind::kUncompleted, state.meta.op, 0, 0, 0), 1, 0);
}

bool Tracker::SettleSlotIfIdle(Communicator& communicator, uint32_t operation, uint64_t now_ns) {
  OperationSlot& slot = communicator.operations[operation];
  uint64_t word = slot.word.load(std::memory_order_acquire);  // the fields are of this generation
  if ((word & SlotWord::kOpen) == 0) return true;
  const uint32_t started = SlotWord::Started(word);
  const OperationState state = ReadSlot(slot, word);
  if (started == 0 || started != SlotWord::Stopped(word)) return false;
  const bool kernel_pending =
      timing_ == TimingMode::kKernel && !state.meta.untimed && (word & SlotWord::kKernelDone) == 0;
  if (kernel_pending) return false;
  const uint64_t last_ns = state.enqueue_ns + (state.last_stop & kDeltaMask);
  if (now_ns < last_ns + kQuietNs) return false;
  LaneWriter lane(segment_, *communicator.record,
                  communicator.record_generation.load(std::memory_order_relaxed),
                  LaneRole::kProgress);
  if (!lane.ok()) return false;
  // Acquire and release: the fields were read before; the new word comes after. Failure: somebody
  // acted on the operation just now, so it is not idle.
  if (!slot.word.compare_exchange_strong(word, word & ~SlotWord::kOpen,
                                         std::memory_order_acq_rel)) {
    return false;
  }
  Settle(communicator, operation, state, lane);
  return true;
}

bool Tracker::SettleIdle() {
  const uint64_t now_ns = clock_.NowNs();
  bool any_open = false;
  for (Communicator& communicator : slots_) {
    if (communicator.context.load(std::memory_order_acquire) == 0) continue;  // settled by finalize
    const uint64_t end = communicator.next_operation.load(std::memory_order_acquire);
    uint64_t begin = communicator.oldest_open.load(std::memory_order_relaxed);  // this thread's own
    if (end - begin > kOperationSlots) begin = end - kOperationSlots;
    bool all_settled = true;
    for (uint64_t number = begin; number < end; ++number) {
      const bool settled =
          SettleSlotIfIdle(communicator, static_cast<uint32_t>(number % kOperationSlots), now_ns);
      if (!settled) all_settled = false;
      if (all_settled) begin = number + 1;
    }
    communicator.oldest_open.store(begin, std::memory_order_relaxed);
    any_open |= !all_settled;
  }
  return any_open;
}

void Tracker::SettleAll(Communicator& communicator) {
  // Other threads may have been taken off the CPU within a callback, with all lanes in their hands.
  // Finalize may wait for one of them.
  for (int attempt = 0; attempt < kLaneAttempts; ++attempt) {
    // The progress thread's lane: it has the pages that its own settling needed.
    LaneWriter lane(segment_, *communicator.record,
                    communicator.record_generation.load(std::memory_order_relaxed),
                    LaneRole::kProgress);
    if (lane.ok()) return SettleAll(communicator, lane);
    nanosleep(&kLanePause, nullptr);
  }
}

void Tracker::SettleAll(Communicator& communicator, LaneWriter& lane) {
  const uint64_t end = communicator.next_operation.load(std::memory_order_acquire);
  const uint64_t begin = end > kOperationSlots ? end - kOperationSlots : 0;
  for (uint64_t number = begin; number < end; ++number) {
    const auto index = static_cast<uint32_t>(number % kOperationSlots);
    OperationSlot& slot = communicator.operations[index];
    uint64_t word = slot.word.load(std::memory_order_acquire);  // the fields are of this generation
    OperationState state;
    do {
      if ((word & SlotWord::kOpen) == 0) break;
      state = ReadSlot(slot, word);
      // Acquire and release: as in SettleSlotIfIdle.
    } while (!slot.word.compare_exchange_weak(
        word, word & ~SlotWord::kOpen, std::memory_order_acq_rel, std::memory_order_acquire));
    if ((word & SlotWord::kOpen) != 0) Settle(communicator, index, state, lane);
  }
}

// ---- counting
// ---------------------------------------------------------------------------------------

void Tracker::CountUntimed(LaneWriter& lane, uint8_t op, UntimedReason reason) {
  lane.Count(SeriesKey::Pack(SeriesKind::kUntimed, op, 0, static_cast<uint32_t>(reason), 0), 1, 0);
}

void Tracker::CountLatency(Communicator& communicator, LaneWriter& lane, LatencyKind kind,
                           const OperationMeta& meta, uint64_t bytes, uint64_t bus_bytes,
                           uint64_t duration_ns, uint64_t end_ns) {
  lane.Observe(SeriesKey::Pack(SeriesKind::kLatency, meta.op, meta.size_class,
                               static_cast<uint32_t>(kind), 0),
               duration_ns, bytes, bus_bytes);
  if (kind != LatencyKind::kDurationKernel && kind != LatencyKind::kDurationStream) {
    lane.lane().last_completion_ns.store(end_ns, std::memory_order_relaxed);  // orders nothing
  }
  CommunicatorRecord& record = *communicator.record;
  // Relaxed: numbers the entry; its sequence publishes it.
  const uint64_t number = record.next_timed_call.fetch_add(1, std::memory_order_relaxed);
  TimedCall& call = record.timed_calls[number % kTimedCalls];
  call.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader of the new fields sees the zero
  call.key.store(uint64_t{meta.op} | static_cast<uint64_t>(kind) << 8 |
                     uint64_t{meta.size_class} << 16 | uint64_t{meta.call_number} << 32,
                 std::memory_order_relaxed);
  call.bytes.store(bytes, std::memory_order_relaxed);
  call.duration_ns.store(duration_ns, std::memory_order_relaxed);
  call.end_monotonic_ns.store(end_ns, std::memory_order_relaxed);
  call.sequence.store(number + 1, std::memory_order_release);  // publishes the fields
}

// ---- stop and state
// ---------------------------------------------------------------------------------

void Tracker::Stop(uint64_t bits) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  const TicketKind kind = Ticket::Kind(bits);
  if (Ticket::Process(bits) == process_tag_) {
    if (kind == TicketKind::kApiCall || kind == TicketKind::kGroup) return;
    if (kind == TicketKind::kLaunch && stream_timer_ != nullptr) return StopLaunch(bits);
  }
  const OperationRef ref = FindOperation(bits, kind);
  if (ref.communicator == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  switch (kind) {
    case TicketKind::kOperation:
      return StopOperation(ref);
    case TicketKind::kProxyOp:
      return StopProxyOp(ref);
    case TicketKind::kKernelChannel:
      return StopKernelChannel(ref);
    default:
      return Ignore(IgnoredReason::kForeignHandle);
  }
}

void Tracker::RecordState(uint64_t bits, int state) {
  if (bits == 0) return Ignore(IgnoredReason::kNullHandle);
  if (Ticket::Process(bits) != process_tag_) return Ignore(IgnoredReason::kForeignHandle);
  constexpr int kLastKnownState = 31;  // KernelPhaseStop, API v7
  if (state < 0 || state > kLastKnownState) return Ignore(IgnoredReason::kUnknownState);
  // The known ones (a ProxyOp in progress, an API call at its group's end) say nothing that is
  // exported. That they came for something that is long gone is worth a count.
  if (Ticket::Kind(bits) != TicketKind::kProxyOp) return;
  const OperationRef ref = FindOperation(bits, TicketKind::kProxyOp);
  if (ref.communicator == nullptr) return Ignore(IgnoredReason::kForeignHandle);
  IsOpen(ref);
}

// ---- life of a communicator
// -------------------------------------------------------------------------

bool Tracker::AllocateSlots(Communicator& communicator) {
  if (communicator.operations != nullptr) return true;
  void* operations = AllocatePopulated(kOperationSlots * sizeof(OperationSlot));
  if (operations == nullptr) return false;
  if (timing_ == TimingMode::kKernel) {
    void* times = AllocatePopulated(kOperationSlots * sizeof(KernelTimes));
    void* trust = AllocatePopulated(sizeof(KernelTrust));
    if (times == nullptr || trust == nullptr) return false;
    communicator.kernel_times = static_cast<KernelTimes*>(times);
    communicator.kernel_trust = static_cast<KernelTrust*>(trust);
  }
  // Last, and with release: FindOperation may meet this slot with a made-up ticket.
  __atomic_store_n(&communicator.operations, static_cast<OperationSlot*>(operations),
                   __ATOMIC_RELEASE);
  return true;
}

int Tracker::FindRecordToUse() {
  // A record never used, else the one finalized longest ago: what is kept for ten minutes gives way
  // only when there is no other place.
  int oldest = -1;
  int64_t oldest_ns = INT64_MAX;
  const auto now_ns = static_cast<int64_t>(clock_.NowNs());
  int expired = -1;
  for (uint32_t i = 0; i < kMaxCommunicators; ++i) {
    const CommunicatorRecord& record = *slots_[i].record;
    // Untouched memory reads as zero, which is kFree. Init lock: nobody else changes states.
    const auto state = static_cast<CommunicatorState>(record.state.load(std::memory_order_relaxed));
    if (state == CommunicatorState::kFree) return expired >= 0 ? expired : static_cast<int>(i);
    if (state != CommunicatorState::kFinalized) continue;
    const int64_t finalized_ns = record.finalized_monotonic_ns.load(std::memory_order_relaxed);
    if (expired < 0 && now_ns - finalized_ns > static_cast<int64_t>(kKeepFinalizedNs)) {
      expired = static_cast<int>(i);  // reused before fresh memory is touched
    }
    if (finalized_ns < oldest_ns) {
      oldest_ns = finalized_ns;
      oldest = static_cast<int>(i);
    }
  }
  return oldest;
}

bool Tracker::Recycle(Communicator& communicator) {
  CommunicatorRecord& record = *communicator.record;
  SegmentHeader& header = segment_.header();
  header.recycle_epoch.fetch_add(1, std::memory_order_acq_rel);  // odd: readers start again
  // Readers drop the record, and writers that come now give their lane back (LaneWriter).
  record.generation.fetch_add(1, std::memory_order_acq_rel);
  communicator.record_generation.store(record.generation.load(std::memory_order_relaxed),
                                       std::memory_order_relaxed);
  record.state.store(static_cast<uint32_t>(CommunicatorState::kFree), std::memory_order_release);

  bool claimed_all = true;
  for (Lane& lane : record.lanes) {
    bool claimed = false;
    for (int attempt = 0; attempt < kLaneAttempts && !claimed; ++attempt) {
      uint32_t expected = 0;
      claimed = lane.owner.compare_exchange_strong(expected, 1, std::memory_order_acquire);
      if (!claimed) nanosleep(&kLanePause, nullptr);
    }
    claimed_all &= claimed;
    if (!claimed) continue;
    for (int kind = 0; kind < kCallbackKinds; ++kind) {
      header.recycled_callbacks[kind].fetch_add(
          lane.callbacks[kind].load(std::memory_order_relaxed), std::memory_order_relaxed);
      lane.callbacks[kind].store(0, std::memory_order_relaxed);
    }
    const int index = static_cast<int>(&lane - record.lanes);
    const uint16_t counters = lane.counter_page.exchange(kNoPage, std::memory_order_relaxed);
    if (counters != kNoPage) segment_.RecyclePage(counters);
    for (SeriesEntry& series : record.series) {
      const uint16_t page = series.page[index].exchange(kNoPage, std::memory_order_relaxed);
      if (page != kNoPage) segment_.RecyclePage(page);
    }
    lane.launches.store(0, std::memory_order_relaxed);
    lane.last_launch_ns.store(0, std::memory_order_relaxed);
    lane.last_completion_ns.store(0, std::memory_order_relaxed);
    lane.overflowed_operations.store(0, std::memory_order_relaxed);
  }
  if (claimed_all) {
    // An operation that began while its communicator ended was settled by nobody, and must not be
    // by the next one. Relaxed: whoever holds no lane claims no place.
    for (uint32_t i = 0; communicator.operations != nullptr && i < kOperationSlots; ++i) {
      communicator.operations[i].word.fetch_and(~SlotWord::kOpen, std::memory_order_relaxed);
    }
    uint64_t series_freed = 0;
    for (SeriesEntry& series : record.series) {
      if (series.key.exchange(0, std::memory_order_relaxed) != 0) ++series_freed;
    }
    header.series_used.fetch_sub(series_freed, std::memory_order_relaxed);
    record.series_count.store(0, std::memory_order_relaxed);
    for (TimedCall& call : record.timed_calls) call.sequence.store(0, std::memory_order_relaxed);
    record.kernel_trust.store(0, std::memory_order_relaxed);
    for (Lane& lane : record.lanes)
      lane.owner.store(0, std::memory_order_release);  // hands it all over
  }
  header.recycle_epoch.fetch_add(1, std::memory_order_release);
  // A lane that stayed busy: its holder would write into the next communicator. The record is given
  // up.
  if (!claimed_all) {
    record.state.store(static_cast<uint32_t>(CommunicatorState::kFinalized),
                       std::memory_order_relaxed);
    record.finalized_monotonic_ns.store(INT64_MAX, std::memory_order_relaxed);
  }
  return claimed_all;
}

uint64_t Tracker::AddCommunicator(const CommunicatorIdentity& identity) {
  const int found = FindRecordToUse();
  if (found < 0) return 0;
  Communicator& communicator = slots_[found];
  CommunicatorRecord& record = *communicator.record;
  const auto state = static_cast<CommunicatorState>(record.state.load(std::memory_order_relaxed));
  if (state == CommunicatorState::kFinalized) {
    if (!Recycle(communicator)) return 0;
  } else if (!segment_.PopulateRecord(static_cast<uint32_t>(found))) {
    return 0;
  }
  if (!AllocateSlots(communicator)) return 0;

  record.generation.fetch_add(1, std::memory_order_acq_rel);
  communicator.record_generation.store(record.generation.load(std::memory_order_relaxed),
                                       std::memory_order_relaxed);
  record.comm_id.store(identity.comm_id, std::memory_order_relaxed);  // published by the state
  record.rank.store(identity.rank, std::memory_order_relaxed);
  __atomic_store_n(&record.nranks, identity.nranks, __ATOMIC_RELAXED);
  __atomic_store_n(&record.nnodes, identity.nnodes, __ATOMIC_RELAXED);
  __atomic_store_n(&record.index, communicators_++, __ATOMIC_RELAXED);
  __atomic_store_n(&record.init_realtime_ns, identity.realtime_ns, __ATOMIC_RELAXED);
  CopyToShared(record.name, identity.name != nullptr ? identity.name : "");
  CopyToShared(record.gpu, identity.gpu);
  CopyToShared(record.uuid, identity.uuid);
  CopyToShared(record.pci_bus_id, identity.pci_bus_id);
  communicator.rank.store(identity.rank, std::memory_order_relaxed);
  communicator.nranks.store(identity.nranks, std::memory_order_relaxed);
  communicator.identity_known.store(identity.comm_id != 0, std::memory_order_relaxed);
  if (communicator.kernel_trust != nullptr) {
    communicator.kernel_trust->failed_history.store(0, std::memory_order_relaxed);
    for (auto& start : communicator.kernel_trust->last_start_ns) {
      start.store(0, std::memory_order_relaxed);
    }
  }
  communicator.oldest_open.store(communicator.next_operation.load(std::memory_order_relaxed),
                                 std::memory_order_relaxed);
  communicator.comm_id.store(identity.comm_id, std::memory_order_relaxed);
  for (auto& row : communicator.call_numbers) {
    for (auto& number : row) number.store(0, std::memory_order_relaxed);
  }
  communicator.pending.calls.store(0, std::memory_order_relaxed);
  communicator.pending.timed_serial.store(0, std::memory_order_relaxed);
  communicator.pending.open_launch.store(0, std::memory_order_relaxed);
  communicator.pending.grouped_launches.store(0, std::memory_order_relaxed);
  communicator.pending.fate.store(static_cast<uint32_t>(LaunchFate::kNotTimed),
                                  std::memory_order_relaxed);
  record.captured.store(0, std::memory_order_relaxed);
  record.launches_completed.store(0, std::memory_order_relaxed);
  record.oldest_inflight_ns.store(0, std::memory_order_relaxed);
  const bool heartbeat = stream_timer_ != nullptr && identity.launches_visible &&
                         stream_timer_->Attach(communicator.timer, timing_ == TimingMode::kAuto);
  record.has_heartbeat.store(heartbeat ? 1 : 0, std::memory_order_relaxed);
  if (used_slots_.load(std::memory_order_relaxed) <= communicator.index) {
    used_slots_.store(communicator.index + 1,
                      std::memory_order_release);  // the poller looks here now
  }
  record.state.store(static_cast<uint32_t>(CommunicatorState::kLive), std::memory_order_release);

  communicator.context_generation = (communicator.context_generation + 1) & Ticket::kGenerationMask;
  const uint64_t context = Ticket::Pack(process_tag_, TicketKind::kContext, 0,
                                        communicator.context_generation, 0, communicator.index);
  communicator.context.store(context, std::memory_order_release);  // publishes the communicator
  ++live_;
  return context;
}

void Tracker::FinishCommunicator(uint64_t context) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return;
  // From here on events with this context are stale. Release and acquire: settling comes after.
  communicator->context.exchange(0, std::memory_order_acq_rel);
  if (stream_timer_ != nullptr) StreamTimer::Retire(communicator->timer, clock_.NowNs());
  SettleAll(*communicator);
  communicator->record->finalized_monotonic_ns.store(static_cast<int64_t>(clock_.NowNs()),
                                                     std::memory_order_relaxed);
  communicator->record->state.store(static_cast<uint32_t>(CommunicatorState::kFinalized),
                                    std::memory_order_release);
  --live_;
  if (live_ == 0) names_.Clear();
}

uint32_t Tracker::CountUnused() const {
  uint32_t count = 0;
  for (const Communicator& communicator : slots_) {
    if (communicator.context.load(std::memory_order_acquire) == 0) continue;
    // Relaxed: an estimate of what will soon be needed.
    const bool unused =
        std::all_of(std::begin(communicator.record->lanes), std::end(communicator.record->lanes),
                    [](const Lane& lane) {
                      return lane.counter_page.load(std::memory_order_relaxed) == kNoPage;
                    });
    if (unused) ++count;
  }
  return count;
}

void Tracker::LearnIdentity(Communicator& communicator, const OperationEvent& event) {
  if (event.comm_hash == 0) return;
  bool expected = false;
  // One thread copies. Relaxed: readers are told by the identity's own atomics.
  if (!communicator.identity_known.compare_exchange_strong(expected, true,
                                                           std::memory_order_relaxed)) {
    return;
  }
  CommunicatorRecord& record = *communicator.record;
  if (event.comm_name != nullptr) CopyToShared(record.name, event.comm_name);
  record.rank.store(event.rank, std::memory_order_relaxed);
  communicator.rank.store(event.rank, std::memory_order_relaxed);
  record.comm_id.store(event.comm_hash, std::memory_order_relaxed);
}

}  // namespace nccl_pulse
