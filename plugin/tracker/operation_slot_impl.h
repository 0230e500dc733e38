// Functions of OperationSlot that are not inline. operation_slot.cc instantiates them for the
// product, tests/model for the model checker.
#ifndef PLUGIN_TRACKER_OPERATION_SLOT_IMPL_H_
#define PLUGIN_TRACKER_OPERATION_SLOT_IMPL_H_

#include "plugin/tracker/operation_slot.h"

namespace nccl_pulse {

template <typename Atomics>
typename BasicOperationSlot<Atomics>::Claim BasicOperationSlot<Atomics>::ClaimUsed(
    bool by_kernel, uint64_t* claimed, OperationState* old) {
  uint64_t word = word_.load(std::memory_order_acquire);  // sees the fields of that generation
  bool settles = false;
  do {
    // The thread that claimed this slot has not finished, although the ring has come round since.
    // Writing the fields now would mix two operations.
    if ((word & SlotWord::kClaimed) != 0) return Claim::kBusy;
    // An operation without children has nothing to report, unless GPU times were expected of it.
    settles = (word & SlotWord::kOpen) != 0 && (SlotWord::Started(word) > 0 || by_kernel);
    if (settles) *old = ReadWhile(word);
    *claimed = SlotWord::NextGeneration(word);
    // Release: the reads of the old fields stay before the swap. Acquire: the stores that follow
    // stay behind it. The loop ends: apart from spurious failures, only a late child of the old
    // operation makes the swap fail. That began kOperationSlots operations ago: few are to come.
  } while (!word_.compare_exchange_weak(word, *claimed | SlotWord::kClaimed,
                                        std::memory_order_acq_rel, std::memory_order_acquire));
  return settles ? Claim::kSettle : Claim::kClaimed;
}

template <typename Atomics>
Refusal BasicOperationSlot<Atomics>::StopEnqueue(uint32_t generation, bool* is_open) {
  uint64_t word = word_.load(std::memory_order_relaxed);  // only the word itself is used
  do {
    if (SlotWord::Generation(word) != generation) return IgnoredReason::kStaleHandle;
    if ((word & SlotWord::kEnqueued) != 0) return IgnoredReason::kRepeatedStop;
  } while (!word_.compare_exchange_weak(word, word | SlotWord::kEnqueued, std::memory_order_relaxed,
                                        std::memory_order_relaxed));  // as above
  *is_open = (word & SlotWord::kOpen) != 0;
  return std::nullopt;
}

template <typename Atomics>
void BasicOperationSlot<Atomics>::ExpectStop(uint32_t generation) {
  uint64_t word = word_.load(std::memory_order_relaxed);  // only the word itself is used
  do {
    if (SlotWord::Generation(word) != generation) return;
  } while (!word_.compare_exchange_weak(word, word & ~SlotWord::kEnqueued,
                                        std::memory_order_relaxed,
                                        std::memory_order_relaxed));  // as above
}

template <typename Atomics>
Refusal BasicOperationSlot<Atomics>::SeeKernel(uint32_t generation) {
  uint64_t word = word_.load(std::memory_order_relaxed);  // only the word itself is used
  do {
    if (SlotWord::Generation(word) != generation || (word & SlotWord::kOpen) == 0) {
      return IgnoredReason::kAfterClose;
    }
    // Release: the thread that settles reads the times that were stored before.
  } while (!word_.compare_exchange_weak(word, word | SlotWord::kKernelSeen,
                                        std::memory_order_release, std::memory_order_relaxed));
  return std::nullopt;
}

template <typename Atomics>
Refusal BasicOperationSlot<Atomics>::FinishKernel(uint32_t generation, OperationState* state,
                                                  bool* ends_it) {
  uint64_t word = word_.load(std::memory_order_acquire);  // the fields are of this generation
  do {
    if (SlotWord::Generation(word) != generation || (word & SlotWord::kOpen) == 0) {
      return IgnoredReason::kAfterClose;
    }
    *state = ReadWhile(word);
    // Without network traffic the operation ends here; with it, the ProxyOps decide when.
    *ends_it = SlotWord::Started(word) == 0;
    // Acquire and release: the fields were read before, and the thread that settles sees the times.
  } while (!word_.compare_exchange_weak(
      word, (word | SlotWord::kKernelDone) & (*ends_it ? ~SlotWord::kOpen : ~uint64_t{0}),
      std::memory_order_acq_rel, std::memory_order_acquire));
  return std::nullopt;
}

template <typename Atomics>
bool BasicOperationSlot<Atomics>::Close(OperationState* state) {
  uint64_t word = word_.load(std::memory_order_acquire);  // the fields are of this generation
  do {
    if ((word & SlotWord::kOpen) == 0) return false;
    *state = ReadWhile(word);
    // Acquire and release: as in CloseIf.
  } while (!word_.compare_exchange_weak(word, word & ~SlotWord::kOpen, std::memory_order_acq_rel,
                                        std::memory_order_acquire));
  return true;
}

template <typename Atomics>
bool BasicOperationSlot<Atomics>::Look(OperationState* state) const {
  *state = Read();
  if (state->has(SlotWord::kClaimed)) return false;
  // Acquire: the word is read again after the fields.
  Atomics::Fence(std::memory_order_acquire);
  const uint64_t again = word_.load(std::memory_order_relaxed);
  return SlotWord::Generation(again) == state->generation();
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_OPERATION_SLOT_IMPL_H_
