// Tracker, the part that follows the network: ProxyOps, from their operation to its last one.
#include <algorithm>

#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

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
  // Only the network transport stops its ProxyOps (docs/nccl-profiler-api.md#network). Relaxed: a
  // flag; the look before the store keeps its line shared.
  if (!network_seen_.load(std::memory_order_relaxed)) {
    network_seen_.store(true, std::memory_order_relaxed);
  }
  const uint64_t enqueue_ns = slot.enqueue_ns.load(std::memory_order_relaxed);
  const uint64_t delta_ns = now_ns > enqueue_ns ? now_ns - enqueue_ns : 0;
  const uint64_t stop = LastStop::Pack(ref.generation, delta_ns);
  const uint64_t previous = slot.last_stop.load(std::memory_order_relaxed);
  if (LastStop::Tag(previous) != LastStop::Tag(stop) || previous < stop) {
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

}  // namespace nccl_pulse
