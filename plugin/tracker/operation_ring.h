// OperationRing keeps one communicator's last kOperationSlots operations, as NCCL reported them.
//
// Operations are numbered in the order of their reports, over all communicators that used this
// ring. Number n has slot n % kOperationSlots. A new operation replaces the one kOperationSlots
// before it. If that one is still open, it is settled first: counted with what is known of it
// (settling.h).
//
// NCCL stops nearly every operation right after its start. Such a stop changes no slot: the ring
// remembers the newest operation until it is stopped.
//
// Thread: Claim and StopNewest by the launching thread, one at a time (a NCCL that breaks this
// costs accuracy, not memory safety); the rest by any thread. Cost: Claim about 15 ns.
#ifndef PLUGIN_TRACKER_OPERATION_RING_H_
#define PLUGIN_TRACKER_OPERATION_RING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/tracker/operation_slot.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

// One more than the largest number of open operations in a recorded run (435, in groups of five,
// with the GPU a hundred launches behind). A communicator stays below 64 KiB with kernel timing on.
inline constexpr uint32_t kOperationSlots = 436;
static_assert(kOperationSlots <= 1u << Ticket::kOperationBits);

class OperationRing {
 public:
  // `next_` and `unstopped_`. The neighbor in memory uses the rest of their cache line.
  static constexpr size_t kBytesOnLastLine = 16;

  static constexpr uint32_t IndexOf(uint64_t number) {
    return static_cast<uint32_t>(number % kOperationSlots);
  }
  OperationSlot& slot(uint32_t place) { return slots_[place]; }

  // Claims a slot for an operation and returns its ticket, or 0 if the slot cannot be claimed.
  // `first_ticket` gives process and communicator (Ticket::OfOperation). If the slot may hold an
  // unsettled operation, calls `claim_used(place, &claimed)`: see ClaimUsed. `by_kernel`: kernel
  // timing is on, so operations without network traffic are also settled.
  template <typename ClaimUsedSlot>
  uint64_t Claim(uint64_t number, uint64_t first_ticket, bool by_kernel,
                 const NewOperation& operation, ClaimUsedSlot claim_used) {
    const uint32_t place = IndexOf(number);
    OperationSlot& slot = slots_[place];
    uint64_t claimed;
    if (__builtin_expect(by_kernel || !slot.ClaimUnused(&claimed), 0)) {
      uint64_t used;  // a second variable, so that `claimed` stays in a register
      if (!claim_used(place, &used)) return 0;
      claimed = used;
    }
    slot.Publish(claimed, operation);
    const uint64_t ticket = Ticket::OfOperation(first_ticket, SlotWord::Generation(claimed), place);
    // Two threads here at once cost only accuracy: a first stop is then counted as a repeated one.
    const uint64_t other = unstopped_.load();
    if (__builtin_expect(other != 0, 0)) ExpectStop(other);
    unstopped_.store(ticket);
    return ticket;
  }
  // Both return the number of the next operation. TakeNumberAlone is faster, for one launching
  // thread.
  uint64_t TakeNumber() { return next_.fetch_add(1); }
  uint64_t TakeNumberAlone() {
    const uint64_t number = next_.load();
    PassOver();
    return number;
  }
  // Skips the number of an operation without a slot, if only one thread launches.
  void PassOver() { next_.add(1); }
  // Claims a slot, and calls `settle(state)` for an open operation in it. Returns false if another
  // claimer is writing the slot.
  template <typename Settle>
  bool ClaimUsed(uint32_t place, bool by_kernel, uint64_t* claimed, Settle settle) {
    OperationState old;
    const OperationSlot::Claim claim = slots_[place].ClaimUsed(by_kernel, claimed, &old);
    if (claim == OperationSlot::Claim::kSettle) settle(old);
    return claim != OperationSlot::Claim::kBusy;
  }
  // Stops the newest operation. Returns false if `ticket` is another operation's.
  bool StopNewest(uint64_t ticket) {
    if (unstopped_.load() != ticket) return false;
    unstopped_.store(0);
    return true;
  }

  // ---- a communicator's life ----

  // Starts anew for the next communicator.
  void Reset() {
    first_.store(next_.load());
    oldest_open_.store(next_.load());
    unstopped_.store(0);
  }
  // Drops operations that began while their communicator ended: they were not settled, and must not
  // count for the next communicator. Call after recycling the record: no thread claims a slot then.
  void Abandon() {
    for (OperationSlot& slot : slots_) slot.Abandon();
  }

  // ---- all operations ----

  // Returns one past the newest number. Acquire: sees these operations as they were claimed.
  uint64_t end() const { return next_.acquire(); }
  // Returns the number of operations reported so far; only differences count. Launching thread.
  uint64_t reported() const { return next_.load(); }
  // Returns this communicator's oldest number that may still have its slot. `end`: from end().
  uint64_t begin(uint64_t end) const { return std::max(first_.load(), OldestOf(end)); }

  // Closes every open operation of the communicator, and calls `settle(place, state)` for each.
  template <typename Settle>
  void CloseAll(Settle settle) {
    const uint64_t last = end();
    for (uint64_t number = OldestOf(last); number < last; ++number) {
      OperationState state;
      if (slots_[IndexOf(number)].Close(&state)) settle(IndexOf(number), state);
    }
  }
  // Background thread. Calls `is_settled(place)` for the oldest operation that was not settled at
  // the last call, and for all newer ones. The newest one is always visited again, because it may
  // have a number but no slot yet. Returns true while an operation is not settled.
  template <typename IsSettled>
  bool VisitOpen(IsSettled is_settled) {
    const uint64_t last = end();
    uint64_t begin = std::max(oldest_open_.load(), OldestOf(last));
    bool all_settled = true;
    for (uint64_t number = begin; number < last; ++number) {
      if (!is_settled(IndexOf(number))) all_settled = false;
      if (all_settled) begin = std::min(number + 1, last - 1);
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

  Relaxed<uint64_t> first_;        // number of this communicator's first operation
  Relaxed<uint64_t> oldest_open_;  // background thread: all operations before it are settled
  uint64_t unused_[6];             // the slots begin a cache line
  OperationSlot slots_[kOperationSlots];
  // In the cache line that the launching thread writes anyway: LaunchFollower comes behind it.
  Ordered<uint64_t> next_;       // number of the next operation
  Relaxed<uint64_t> unstopped_;  // ticket of the newest operation until it is stopped, or 0
};
static_assert(sizeof(OperationRing) % 64 == OperationRing::kBytesOnLastLine);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_OPERATION_RING_H_
