// One communicator's operations: a place for each of the last kOperationSlots that NCCL reported.
//
// Operations are numbered in the order in which they are reported, over all communicators that had
// this ring; number n has place n % kOperationSlots. A new one takes the place of the one that is
// kOperationSlots older, which is settled then if it still is open.
//
// NCCL stops nearly every operation right after its start. Such a stop changes no slot: the ring
// remembers the newest operation until it is stopped.
//
// Thread: Claim and StopNewest by the launching thread, one at a time (a NCCL that breaks that
// costs accuracy, not memory safety); the rest any. Cost: Claim about 15 ns.
#ifndef PLUGIN_TRACKER_OPERATION_RING_H_
#define PLUGIN_TRACKER_OPERATION_RING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/tracker/operation_slot.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

// One more than a recorded run had open at once: 435 operations, in groups of five, with the GPU a
// hundred launches behind. A communicator stays below 64 KiB with kernel timing on.
inline constexpr uint32_t kOperationSlots = 436;
static_assert(kOperationSlots <= 1u << Ticket::kOperationBits);

class OperationRing {
 public:
  // The rest of its last cache line is its neighbour's: `next_` and `unstopped_` stand there.
  static constexpr size_t kBytesOnLastLine = 16;

  static constexpr uint32_t PlaceOf(uint64_t number) {
    return static_cast<uint32_t>(number % kOperationSlots);
  }
  OperationSlot& slot(uint32_t place) { return slots_[place]; }

  // A place for an operation, and its ticket, of which `first_ticket` says process and
  // communicator (Ticket::OfOperation); 0: the place cannot be taken. Where an operation may stand
  // that has something to say, `claim_used(place, &claimed)` is called: see ClaimUsed. `by_kernel`:
  // operations without children have something to say, too.
  template <typename ClaimUsedPlace>
  uint64_t Claim(uint64_t number, uint64_t first_ticket, bool by_kernel,
                 const NewOperation& operation, ClaimUsedPlace claim_used) {
    const uint32_t place = PlaceOf(number);
    OperationSlot& slot = slots_[place];
    uint64_t claimed;
    if (__builtin_expect(by_kernel || !slot.ClaimUnused(&claimed), 0)) {
      uint64_t used;  // of its own, so that the other stays in a register
      if (!claim_used(place, &used)) return 0;
      claimed = used;
    }
    slot.Publish(claimed, operation);
    const uint64_t ticket = Ticket::OfOperation(first_ticket, SlotWord::Generation(claimed), place);
    // Should two threads meet here, a stop is taken for a repeated one.
    const uint64_t other = unstopped_.load();
    if (__builtin_expect(other != 0, 0)) ExpectStop(other);
    unstopped_.store(ticket);
    return ticket;
  }
  // The number of the next operation, from one of several threads, or from the only one.
  uint64_t TakeNumber() { return next_.fetch_add(1); }
  uint64_t TakeNumberAlone() {
    const uint64_t number = next_.load();
    PassOver();
    return number;
  }
  // The only thread has an operation that needs no place.
  void PassOver() { next_.add(1); }
  // Claims a place; `settle(state)` is called for an operation that still stood there. False: it is
  // being written by another claimer.
  template <typename Settle>
  bool ClaimUsed(uint32_t place, bool by_kernel, uint64_t* claimed, Settle settle) {
    OperationState old;
    const OperationSlot::Claim claim = slots_[place].ClaimUsed(by_kernel, claimed, &old);
    if (claim == OperationSlot::Claim::kSettle) settle(old);
    return claim != OperationSlot::Claim::kBusy;
  }
  // Stops the newest operation; false: `ticket` is another one's.
  bool StopNewest(uint64_t ticket) {
    if (unstopped_.load() != ticket) return false;
    unstopped_.store(0);
    return true;
  }

  // ---- a communicator's life ----

  // The ring's next communicator begins.
  void Reset() {
    first_.store(next_.load());
    oldest_open_.store(next_.load());
    unstopped_.store(0);
  }
  // An operation that began while its communicator ended was settled by nobody, and must not be by
  // the next one. Whoever holds no lane claims no place.
  void Abandon() {
    for (OperationSlot& slot : slots_) slot.Abandon();
  }

  // ---- who looks at all of them ----

  // One past the newest number. Acquire: sees the communicator's operations as they were claimed.
  uint64_t end() const { return next_.acquire(); }
  // Operations reported so far; for differences. Launching thread.
  uint64_t reported() const { return next_.load(); }
  // The oldest number of this communicator that may have its place still.
  uint64_t begin(uint64_t end) const { return std::max(first_.load(), OldestOf(end)); }

  // Closes every open operation of the communicator; `settle(place, state)` for each.
  template <typename Settle>
  void CloseAll(Settle settle) {
    const uint64_t last = end();
    for (uint64_t number = OldestOf(last); number < last; ++number) {
      OperationState state;
      if (slots_[PlaceOf(number)].Close(&state)) settle(PlaceOf(number), state);
    }
  }
  // Background thread. Asks `is_settled(place)` of each operation that was not at the last call,
  // oldest first. True while one is not.
  template <typename IsSettled>
  bool VisitOpen(IsSettled is_settled) {
    const uint64_t last = end();
    uint64_t begin = std::max(oldest_open_.load(), OldestOf(last));
    bool all_settled = true;
    for (uint64_t number = begin; number < last; ++number) {
      if (!is_settled(PlaceOf(number))) all_settled = false;
      if (all_settled) begin = number + 1;
    }
    oldest_open_.store(begin);
    return !all_settled;
  }

 private:
  static constexpr uint64_t OldestOf(uint64_t end) {
    return end > kOperationSlots ? end - kOperationSlots : 0;
  }
  [[gnu::cold, gnu::noinline]] void ExpectStop(uint64_t ticket) {
    slots_[Ticket::Operation(ticket)].ExpectStop(Ticket::Generation(ticket));
  }

  Relaxed<uint64_t> first_;        // number of this communicator's first
  Relaxed<uint64_t> oldest_open_;  // background thread: those before it are settled
  uint64_t unused_[6];             // the slots begin a cache line
  OperationSlot slots_[kOperationSlots];
  // In the cache line that the launching thread writes anyway: LaunchFollower comes behind it.
  Ordered<uint64_t> next_;       // number of the next operation
  Relaxed<uint64_t> unstopped_;  // ticket of the newest until it is stopped, or 0
};
static_assert(sizeof(OperationRing) % 64 == OperationRing::kBytesOnLastLine);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_OPERATION_RING_H_
