// OperationSlot holds one open operation: its state in a word, and totals of its network
// operations.
//
//   `word`                     meaning
//   generation+1, kClaimed     claimed by OperationRing for a new operation: only the claimer
//                              writes the fields. An operation that was still open is settled
//   generation+1, kOpen        published. Children raise started and stopped and set flags, by
//                              compare-and-swap
//   without kOpen              settled: no further event of the operation counts
//
// Every change of `word` is a compare-and-swap that contains the generation, so a child of an old
// operation cannot touch the slot's next one. The thread that clears kOpen (or replaces the
// generation) settles the operation, that is, counts its result; that swap succeeds once.
//
// Errors: a function that refuses an event returns the reason, and its caller counts it.
//
// Thread: any; Publish only the claimer.
// Cost: one compare-and-swap, about 5 ns, in the steady state.
// Explored by tests/model/operation_slot_test.cc.
#ifndef PLUGIN_TRACKER_OPERATION_SLOT_H_
#define PLUGIN_TRACKER_OPERATION_SLOT_H_

#include <atomic>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"
#include "plugin/tracker/refusal.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

// The operation's state in one word:
//
//   bit  63  60 59        40 39   32 31     16 15      0
//        |  -  | generation | flags | started | stopped |
//           4        20         8       16        16
struct SlotWord {
  static constexpr uint64_t kOpen = uint64_t{1} << 32;
  // Coll or P2p was stopped. For the newest operation, see OperationRing::unstopped_ instead.
  static constexpr uint64_t kEnqueued = uint64_t{1} << 33;
  static constexpr uint64_t kKernelSeen = uint64_t{1} << 34;  // a channel has started
  static constexpr uint64_t kKernelDone = uint64_t{1} << 35;  // all channels have stopped
  static constexpr uint64_t kClaimed = uint64_t{1} << 36;     // its fields are being written
  static constexpr uint64_t kCaptured = uint64_t{1} << 37;    // called into a CUDA graph
  static constexpr uint64_t kOneStarted = uint64_t{1} << 16;
  static constexpr uint64_t kOneStopped = 1;

  static constexpr uint64_t kStartedMask = uint64_t{0xffff} << 16;

  static constexpr uint32_t Generation(uint64_t word) { return static_cast<uint32_t>(word >> 40); }
  // Returns a word with the next generation, and no other bit.
  static constexpr uint64_t NextGeneration(uint64_t word) {
    constexpr uint64_t kOne = uint64_t{1} << 40;
    return (word + kOne) & uint64_t{Ticket::kGenerationMask} << 40;
  }
  static constexpr uint32_t Started(uint64_t word) { return word >> 16 & 0xffff; }
  static constexpr uint32_t Stopped(uint64_t word) { return word & 0xffff; }
};

// OperationSlot::last_stop_: generation's low 12 bits, then ns since enqueue. The tag shows a store
// that came late, from a child of the slot's previous operation.
struct LastStop {
  static constexpr uint64_t kDeltaBits = 52;
  static constexpr uint64_t kDeltaMask = (uint64_t{1} << kDeltaBits) - 1;

  static constexpr uint64_t TagOf(uint32_t generation) { return generation & 0xfff; }
  static constexpr uint64_t Pack(uint32_t generation, uint64_t delta_ns) {
    return TagOf(generation) << kDeltaBits | (delta_ns < kDeltaMask ? delta_ns : kDeltaMask);
  }
  static constexpr uint64_t Tag(uint64_t bits) { return bits >> kDeltaBits; }
  static constexpr uint64_t DeltaNs(uint64_t bits) { return bits & kDeltaMask; }
};

// The time at which an operation's first network step moved data: generation:20, then ns since
// enqueue. Another generation means that no step has moved data.
struct FirstMove {
  static constexpr uint64_t kDeltaBits = 44;
  static constexpr uint64_t kDeltaMask = (uint64_t{1} << kDeltaBits) - 1;

  static constexpr uint64_t Pack(uint32_t generation, uint64_t delta_ns) {
    return uint64_t{generation} << kDeltaBits | (delta_ns < kDeltaMask ? delta_ns : kDeltaMask);
  }
  static constexpr uint32_t Generation(uint64_t bits) {
    return static_cast<uint32_t>(bits >> kDeltaBits);
  }
  static constexpr uint64_t DeltaNs(uint64_t bits) { return bits & kDeltaMask; }
};

// Eight bytes, so that callbacks pass it in a register.
struct OperationMeta {
  OperationMeta() = default;
  constexpr OperationMeta(uint8_t op, uint8_t size_class, uint8_t channels, bool untimed,
                          uint32_t call_number, uint8_t user_tag = 0)
      : op(op),
        size_class(size_class),
        channels(channels),
        untimed(untimed),
        user_tag(user_tag & 0x7f),
        call_number(call_number) {}

  uint8_t op;
  uint8_t size_class;
  uint8_t channels;      // 0: not known
  uint8_t untimed : 1;   // no kernel time is expected: counted as untimed when it was reported
  uint8_t user_tag : 7;  // UserTags; for calls and their durations
  uint32_t call_number;

  uint64_t Pack() const {
    return uint64_t{op} | uint64_t{size_class} << 8 | uint64_t{channels} << 16 |
           uint64_t{untimed} << 24 | uint64_t{user_tag} << 25 | uint64_t{call_number} << 32;
  }
  static OperationMeta Unpack(uint64_t bits) {
    return {static_cast<uint8_t>(bits),        static_cast<uint8_t>(bits >> 8),
            static_cast<uint8_t>(bits >> 16),  (bits >> 24 & 1) != 0,
            static_cast<uint32_t>(bits >> 32), static_cast<uint8_t>(bits >> 25 & 0x7f)};
  }
};
static_assert(sizeof(OperationMeta) == 8);

// The fields of a slot, valid for `word`.
struct OperationState {
  uint64_t word, last_stop, enqueue_ns, bytes;
  OperationMeta meta;

  uint32_t generation() const { return SlotWord::Generation(word); }
  bool has(uint64_t flag) const { return (word & flag) != 0; }
  uint32_t started() const { return SlotWord::Started(word); }
  uint32_t stopped() const { return SlotWord::Stopped(word); }
};

// The fields of a new operation.
struct NewOperation {
  uint64_t meta;  // OperationMeta
  uint64_t bytes, enqueue_ns;
  bool captured;
};

template <typename Atomics>
class BasicOperationSlot {
 public:
  // ---- the claimer ----

  // Claims the slot if its last operation had no child and no claimer is writing it. Returns false
  // otherwise. `claimed`: a word with the new generation.
  bool ClaimUnused(uint64_t* claimed) {
    // Relaxed: no field of that generation is read here.
    uint64_t word = word_.load(std::memory_order_relaxed);
    *claimed = SlotWord::NextGeneration(word);
    // Acquire: the stores that follow stay behind the reads of the thread that settled it.
    return __builtin_expect((word & (SlotWord::kClaimed | SlotWord::kStartedMask)) == 0, 1) &&
           __builtin_expect(
               word_.compare_exchange_strong(word, *claimed | SlotWord::kClaimed,
                                             std::memory_order_acquire, std::memory_order_relaxed),
               1);
  }
  enum class Claim { kBusy, kClaimed, kSettle };
  // kSettle: the caller must settle `old` before Publish. kBusy: another claimer is writing the
  // slot. `by_kernel`: kernel timing is on, so operations without ProxyOps are also settled.
  Claim ClaimUsed(bool by_kernel, uint64_t* claimed, OperationState* old);
  void Publish(uint64_t claimed, const NewOperation& operation) {
    // Release: a thread that reads a new field (Look) then finds the slot claimed. No instruction
    // on x86-64.
    Atomics::Fence(std::memory_order_release);
    // Published by the store of the word.
    last_stop_.store(LastStop::Pack(SlotWord::Generation(claimed), 0));
    enqueue_ns_.store(operation.enqueue_ns);
    bytes_.store(operation.bytes);
    meta_.store(operation.meta);
    stopped_proxies_.store(0);
    word_.store(claimed | SlotWord::kOpen | SlotWord::kEnqueued |
                    (operation.captured ? SlotWord::kCaptured : 0),
                std::memory_order_release);
  }

  // ---- events of the operation and its children ----

  // True if the operation still accepts events of its children.
  Refusal Check(uint32_t generation) const {
    const uint64_t word = word_.load(std::memory_order_relaxed);  // only the word is used
    if (SlotWord::Generation(word) != generation) return IgnoredReason::kStaleHandle;
    if ((word & SlotWord::kOpen) == 0) return IgnoredReason::kAfterClose;
    return std::nullopt;
  }
  bool IsOpen(uint32_t generation) const { return !Check(generation); }
  bool IsCaptured() const {
    return (word_.load(std::memory_order_relaxed) & SlotWord::kCaptured) != 0;  // a flag alone
  }

  // Notes the stop of the Coll or P2p event. Sets `is_open` if the operation is still open.
  Refusal StopEnqueue(uint32_t generation, bool* is_open);
  // Notes that the event's stop is still to come, because another operation was started before
  // it.
  void ExpectStop(uint32_t generation);

  // Notes the start of a ProxyOp, and returns its number within the operation.
  Refusal StartProxy(uint32_t generation, uint32_t* number);
  Refusal StopProxy(uint32_t generation, uint32_t number, uint64_t now_ns);

  // Notes the first channel of its kernel. Release: the settling thread sees the stores before it.
  Refusal SeeKernel(uint32_t generation);
  // Notes that all channels have stopped. Sets `ends_it` if there is no network traffic, so that
  // the operation has ended.
  Refusal FinishKernel(uint32_t generation, OperationState* state, bool* ends_it);
  // Sets `meta`, for a channel's first start. Acquire: it is of that generation.
  Refusal ReadMeta(uint32_t generation, OperationMeta* meta) const {
    const uint64_t word = word_.load(std::memory_order_acquire);
    if (SlotWord::Generation(word) != generation) return IgnoredReason::kStaleHandle;
    if ((word & SlotWord::kOpen) == 0) return IgnoredReason::kAfterClose;
    *meta = OperationMeta::Unpack(meta_.load());
    return std::nullopt;
  }
  // Returns false if the slot has another operation.
  bool ReadEnqueue(uint32_t generation, uint64_t* enqueue_ns) const {
    // Acquire: sees the enqueue time. While the slot is claimed, it is the previous operation's.
    const uint64_t word = word_.load(std::memory_order_acquire);
    if (SlotWord::Generation(word) != generation || (word & SlotWord::kClaimed) != 0) return false;
    *enqueue_ns = enqueue_ns_.load();
    return true;
  }

  // ---- settling ----

  // Closes the operation and returns its state. Returns false if it is not open.
  bool Close(OperationState* state);
  // Returns the current state, for CloseIf. Acquire: the fields are of this generation.
  OperationState Read() const { return ReadWhile(word_.load(std::memory_order_acquire)); }
  // Closes the operation unless it has changed since it was read.
  bool CloseIf(const OperationState& state) {
    uint64_t word = state.word;
    // Release: the reads of the fields stay before the swap.
    return word_.compare_exchange_strong(word, word & ~SlotWord::kOpen, std::memory_order_release,
                                         std::memory_order_relaxed);
  }
  // Reads the state while other threads may claim the slot. Returns false if the fields may be of
  // two operations.
  bool Look(OperationState* state) const;
  // Drops the slot's operation without settling it.
  void Abandon() {
    // Relaxed: the caller excludes claimers (OperationRing::Abandon).
    word_.fetch_and(~SlotWord::kOpen, std::memory_order_relaxed);
  }

 private:
  OperationState ReadWhile(uint64_t word) const {
    // Relaxed: `word` was read with acquire, and the caller's swap of it proves afterwards that no
    // new operation had taken the slot while the fields were read.
    return {word, last_stop_.load(), enqueue_ns_.load(), bytes_.load(),
            OperationMeta::Unpack(meta_.load())};
  }

  typename Atomics::template Atomic<uint64_t> word_;
  Relaxed<uint64_t, Atomics> last_stop_;  // LastStop, of the last ProxyOp to stop
  Relaxed<uint64_t, Atomics> enqueue_ns_;
  Relaxed<uint64_t, Atomics> bytes_;
  Relaxed<uint64_t, Atomics> meta_;  // OperationMeta
  Relaxed<uint64_t, Atomics>
      stopped_proxies_;  // bit i: ProxyOp number i has stopped; only detects repeated stops
};

// ---- for each network operation: inline, because a function call would add 10 % to the callback
// ----

template <typename Atomics>
inline Refusal BasicOperationSlot<Atomics>::StartProxy(uint32_t generation, uint32_t* number) {
  uint64_t word = word_.load(std::memory_order_relaxed);  // only the word itself is used
  do {
    if (SlotWord::Generation(word) != generation) return IgnoredReason::kStaleHandle;
    if ((word & SlotWord::kOpen) == 0) return IgnoredReason::kAfterClose;
    if (SlotWord::Started(word) == 0xffff) return IgnoredReason::kNoRoom;
  } while (!word_.compare_exchange_weak(word, word + SlotWord::kOneStarted,
                                        std::memory_order_relaxed,
                                        std::memory_order_relaxed));  // carries no other data
  *number = SlotWord::Started(word);
  return std::nullopt;
}

template <typename Atomics>
inline Refusal BasicOperationSlot<Atomics>::StopProxy(uint32_t generation, uint32_t number,
                                                      uint64_t now_ns) {
  uint64_t word = word_.load(std::memory_order_acquire);  // enqueue_ns_ is of this generation
  if (SlotWord::Generation(word) != generation) return IgnoredReason::kStaleHandle;
  if ((word & SlotWord::kOpen) == 0) return IgnoredReason::kAfterClose;
  if (number >= SlotWord::Started(word)) return IgnoredReason::kStopWithoutStart;
  if (number < 64) {
    const uint64_t bit = uint64_t{1} << number;
    // Load and store instead of a read-modify-write. With PXN two proxies of one process may stop
    // ProxyOps of one operation at once. A bit may then get lost, so that a repeated stop of its
    // handle is not detected. A first stop is never taken for a repeated one.
    const uint64_t stopped = stopped_proxies_.load();
    if ((stopped & bit) != 0) return IgnoredReason::kRepeatedStop;
    stopped_proxies_.store(stopped | bit);
  }
  const uint64_t enqueue_ns = enqueue_ns_.load();
  const uint64_t delta_ns = now_ns > enqueue_ns ? now_ns - enqueue_ns : 0;
  const uint64_t stop = LastStop::Pack(generation, delta_ns);
  const uint64_t previous = last_stop_.load();
  if (LastStop::Tag(previous) != LastStop::Tag(stop) || previous < stop) {
    last_stop_.store(stop);  // released by the swap below
  }
  do {
    if (SlotWord::Generation(word) != generation || (word & SlotWord::kOpen) == 0) {
      return IgnoredReason::kAfterClose;
    }
    if (SlotWord::Stopped(word) >= SlotWord::Started(word)) return IgnoredReason::kRepeatedStop;
    // Release: a thread that sees this stop counted sees its time.
  } while (!word_.compare_exchange_weak(word, word + SlotWord::kOneStopped,
                                        std::memory_order_release, std::memory_order_relaxed));
  return std::nullopt;
}

using OperationSlot = BasicOperationSlot<StdAtomics>;
static_assert(sizeof(OperationSlot) == 48);
// Functions that are not inline are in operation_slot.cc, so that callbacks stay small.
extern template class BasicOperationSlot<StdAtomics>;

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_OPERATION_SLOT_H_
