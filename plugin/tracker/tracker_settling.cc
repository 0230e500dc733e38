// Tracker, the part that counts what an operation came to, once: when it is quiet, when its place
// is needed, or at finalize.
#include <time.h>

#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

void Tracker::Settle(Communicator& communicator, uint32_t operation, const OperationState& state,
                     LaneWriter& lane) {
  const uint32_t started = SlotWord::Started(state.word);
  const uint32_t stopped = SlotWord::Stopped(state.word);
  const bool kernel_seen = (state.word & SlotWord::kKernelSeen) != 0;
  const bool kernel_done = (state.word & SlotWord::kKernelDone) != 0;
  bool uncompleted = false;
  if (started > 0) {
    AddToCell(lane.lane().callbacks[static_cast<int>(CallbackKind::kProxy)], started + stopped);
    const uint64_t tag = LastStop::Tag(state.last_stop);
    if (started == stopped && tag == LastStop::TagOf(SlotWord::Generation(state.word))) {
      const uint64_t duration_ns = LastStop::DeltaNs(state.last_stop);
      CountLatency(
          communicator, lane, LatencyKind::kCompletionProxy, state.meta, state.bytes,
          BusBytes(state.meta.op, state.bytes, communicator.nranks.load(std::memory_order_relaxed)),
          duration_ns, state.enqueue_ns + duration_ns);
      CountNetworkTime(communicator, operation, state, lane);
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
  const uint64_t last_ns = state.enqueue_ns + LastStop::DeltaNs(state.last_stop);
  if (now_ns < last_ns + kQuietNs) return false;
  LaneWriter lane = ClaimLane(communicator, LaneRole::kProgress);
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
    KeepPagesToSettle();
    const uint64_t end =
        communicator.launching->pending.next_operation.load(std::memory_order_acquire);
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
  KeepPagesToSettle();
  // Other threads may have been taken off the CPU within a callback, with all lanes in their hands.
  // Finalize may wait for one of them.
  for (int attempt = 0; attempt < RecordWriter::kLaneAttempts; ++attempt) {
    // The progress thread's lane: it has the pages that its own settling needed.
    LaneWriter lane = ClaimLane(communicator, LaneRole::kProgress);
    if (lane.ok()) return SettleAll(communicator, lane);
    nanosleep(&RecordWriter::kLanePause, nullptr);
  }
}

void Tracker::SettleAll(Communicator& communicator, LaneWriter& lane) {
  const uint64_t end =
      communicator.launching->pending.next_operation.load(std::memory_order_acquire);
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

}  // namespace nccl_pulse
