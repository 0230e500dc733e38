#include "plugin/tracker/settling.h"

#include <ctime>

#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/counting.h"

namespace nccl_pulse {
namespace {

// Counts the time from the first network step that moved data to the last ProxyOp's stop, if steps
// were watched.
void CountNetworkTime(Instruments& instruments, Communicator& communicator, uint32_t place,
                      const OperationState& state, LaneWriter& lane) {
  FirstMoves* const first_moves = communicator.parts.load()->first_moves;
  if (first_moves == nullptr) return;
  Relaxed<uint64_t>& cell = (*first_moves)[place];
  // Relaxed: the swap of the word, which the settling thread made, came after the ProxyOps' stops.
  const uint64_t first_move = cell.load();
  if (FirstMove::Generation(first_move) != state.generation() || first_move == 0) return;
  cell.store(0);  // a later operation may have the same generation
  const uint64_t first_ns = FirstMove::DeltaNs(first_move);
  const uint64_t last_ns = LastStop::DeltaNs(state.last_stop);
  CountLatency(instruments.segment, communicator, lane,
               {LatencyKind::kDurationNetwork, state.meta, state.bytes,
                BusBytesOf(communicator, state.meta.op, state.bytes),
                last_ns > first_ns ? last_ns - first_ns : 0, state.enqueue_ns + last_ns});
}

// Counts the completion time by ProxyOps. Returns true if all started ProxyOps have stopped, and
// the time is known.
bool CountProxies(Instruments& instruments, Communicator& communicator, uint32_t place,
                  const OperationState& state, LaneWriter& lane) {
  lane.lane().callbacks[static_cast<int>(CallbackKind::kProxy)].publish_sum(state.started() +
                                                                            state.stopped());
  const uint64_t tag = LastStop::Tag(state.last_stop);
  if (state.started() != state.stopped() || tag != LastStop::TagOf(state.generation())) {
    return false;
  }
  const uint64_t duration_ns = LastStop::DeltaNs(state.last_stop);
  CountLatency(instruments.segment, communicator, lane,
               {LatencyKind::kCompletionProxy, state.meta, state.bytes,
                BusBytesOf(communicator, state.meta.op, state.bytes), duration_ns,
                state.enqueue_ns + duration_ns});
  CountNetworkTime(instruments, communicator, place, state, lane);
  return true;
}

bool SettleIfIdle(Instruments& instruments, Communicator& communicator, uint32_t place,
                  uint64_t now_ns) {
  OperationSlot& slot = communicator.parts.load()->ring.slot(place);
  const OperationState state = slot.Read();
  if (!state.has(SlotWord::kOpen)) return true;
  if (state.started() == 0 || state.started() != state.stopped()) return false;
  const bool kernel_pending =
      instruments.times_kernels() && !state.meta.untimed && !state.has(SlotWord::kKernelDone);
  if (kernel_pending) return false;
  const uint64_t last_ns = state.enqueue_ns + LastStop::DeltaNs(state.last_stop);
  if (now_ns < last_ns + kQuietNs) return false;
  LaneWriter lane = communicator.ClaimLane(instruments.segment, LaneRole::kProgress);
  // Not settled without a lane, or if another thread has just changed the operation.
  if (!lane.ok() || !slot.CloseIf(state)) return false;
  Settle(instruments, communicator, place, state, lane);
  return true;
}

bool IsTrusted(const Communicator& communicator) {
  return communicator.record->kernel_trust.load() == static_cast<uint32_t>(TrustState::kTrusted);
}

}  // namespace

void Settle(Instruments& instruments, Communicator& communicator, uint32_t place,
            const OperationState& state, LaneWriter& lane) {
  const bool kernel_seen = state.has(SlotWord::kKernelSeen);
  const bool kernel_done = state.has(SlotWord::kKernelDone);
  bool uncompleted = false;
  if (state.started() == 0) {
    uncompleted = kernel_seen && !kernel_done;
  } else if (!CountProxies(instruments, communicator, place, state, lane)) {
    uncompleted = true;
  }
  if (instruments.times_kernels() && !kernel_done && !state.meta.untimed) {
    if (!kernel_seen) {
      CountUntimed(lane, state.meta.op, UntimedReason::kInvisible);
    } else if (state.meta.channels == 0 &&
               communicator.parts.load()->channels->IsQuiet(place, state.generation())) {
      // NCCL did not report the number of channels, and all channels that started have stopped.
      CountKernelTime(instruments, communicator, place, state, instruments.clock.NowNs(), lane);
      uncompleted = state.started() > 0 && uncompleted;
    } else {
      CountUntimed(lane, state.meta.op, UntimedReason::kLost);
    }
  }
  if (uncompleted) {
    lane.Count(SeriesKey::Uncompleted(state.meta.op), 1, 0);
  }
}

bool ClaimUsedSlot(Instruments& instruments, Communicator& communicator, uint32_t place,
                   LaneWriter& lane, uint64_t* claimed) {
  return communicator.parts.load()->ring.ClaimUsed(
      place, instruments.times_kernels(), claimed,
      [&](const OperationState& old) { Settle(instruments, communicator, place, old, lane); });
}

bool SettleIdle(Instruments& instruments, Communicator& communicator, uint64_t now_ns) {
  return communicator.parts.load()->ring.VisitOpen(
      [&](uint32_t place) { return SettleIfIdle(instruments, communicator, place, now_ns); });
}

void SettleAll(Instruments& instruments, Communicator& communicator) {
  // Other threads may have been taken off the CPU within a callback while they hold all the lanes.
  // Finalize may wait for one of them.
  for (int attempt = 0; attempt < RecordWriter::kLaneAttempts; ++attempt) {
    // Uses the progress thread's lane, whose chunks are there already: that thread also settles
    // operations.
    LaneWriter lane = communicator.ClaimLane(instruments.segment, LaneRole::kProgress);
    if (lane.ok()) {
      return communicator.parts.load()->ring.CloseAll(
          [&](uint32_t place, const OperationState& state) {
            Settle(instruments, communicator, place, state, lane);
          });
    }
    nanosleep(&RecordWriter::kLanePause, nullptr);
  }
}

void CountKernelTime(Instruments& instruments, Communicator& communicator, uint32_t place,
                     const OperationState& state, uint64_t now_ns, LaneWriter& lane) {
  if (!IsTrusted(communicator)) {
    return CountUntimed(lane, state.meta.op, UntimedReason::kUntrusted);
  }
  const KernelChannels::Verdict verdict = communicator.parts.load()->channels->Judge(place);
  if (verdict.distrust)
    communicator.Writer(instruments.segment).Distrust(TrustState::kChecksFailed);
  if (verdict.untimed) return CountUntimed(lane, state.meta.op, *verdict.untimed);
  CountLatency(instruments.segment, communicator, lane,
               {LatencyKind::kDurationKernel, state.meta, state.bytes,
                BusBytesOf(communicator, state.meta.op, state.bytes), verdict.duration_ns, now_ns});
}

}  // namespace nccl_pulse
