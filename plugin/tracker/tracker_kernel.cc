// Tracker, the part that follows GPU timestamps, with kernel timing, and checks them.
#include <algorithm>

#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {
namespace {

// A communicator is distrusted when so many of its last 64 multi-channel operations failed their
// checks. Sound ones fail in short bursts when the GPU laps the poller (9 in one recorded run,
// whose launches carry five operations each); drifted ones keep failing.
constexpr int kFailuresToDistrust = 16;

}  // namespace

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
  LaneWriter lane = ClaimLane(communicator, LaneRole::kProgress);
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
  WriterOf(communicator).Distrust(why);
}

}  // namespace nccl_pulse
