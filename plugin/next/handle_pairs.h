// HandlePairs maps the handle that NCCL gets for an event to two handles: this plugin's, and the
// handle of the next profiler (a second profiler plugin that this plugin calls, chain.cc).
//
// Most events need no pair. If only one of the two plugins returned a handle, NCCL gets it
// unchanged. This plugin's handles are tickets (ticket.h), whose process, the upper 13 bits, is
// never 0. The next profiler's handles are addresses, which have 48 bits on x86-64 and arm64. A pair
// is kept only if both plugins returned a handle, or if the next profiler's handle has one of the
// upper 13 bits.
//
//   bit  63        51 50  47 46           16 15     0
//        | process   | kind | generation    | slot |      a pair; tickets never have kind 14 or 15
//
// Slots are used in turn. NCCL uses handles after their stop, so it is never known when a slot is
// free. A pair is overwritten after kSlots others, and its handle no longer matches. Later
// callbacks with that handle reach only this plugin, which counts the handle as unknown.
//
// Thread: any. Cost: Put is a fetch_add and five stores, Find five loads. Memory: 32 bytes a slot.
// Two threads write one slot only if kSlots - 1 other pairs are put meanwhile.
#ifndef PLUGIN_NEXT_HANDLE_PAIRS_H_
#define PLUGIN_NEXT_HANDLE_PAIRS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

struct HandlePair {
  uint64_t ours = 0, next = 0;  // handles or contexts of the two plugins
  bool has_next = false;        // needed because the next profiler's context may be null
};

// `kKind`: value of the handles' bits 47 to 50.
template <uint32_t kKind, uint32_t kSlots>
class HandlePairs {
  static constexpr int kSlotBits = 16;
  static constexpr int kKindShift = 47;
  static constexpr uint64_t kGenerationMask = (uint64_t{1} << (kKindShift - kSlotBits)) - 1;
  static_assert(kSlots <= 1u << kSlotBits && kKind > 9 && kKind < 16);

 public:
  static constexpr bool IsTicketOrPair(uint64_t handle) {
    return handle >> (kKindShift + Ticket::kKindBits) != 0;
  }

  // Call first. `process`: 13 bits that differ between processes, so that another process' pairs
  // are refused; not 0. Touches the memory, so that callbacks never fault it in.
  void Begin(uint32_t process) {
    issuer_ = uint64_t{process} << Ticket::kKindBits | kKind;
    for (Slot& slot : slots_) slot.has_next.store(false, std::memory_order_relaxed);
  }

  // True if this object issued the handle.
  bool IsIssuer(uint64_t handle) const { return handle >> kKindShift == issuer_; }

  // Keeps a pair and returns the handle for it.
  uint64_t Put(const HandlePair& pair) {
    const uint64_t generation = NextGeneration();
    return PutAt(generation % kSlots, generation, pair);
  }
  // Like Put, at a slot that the caller has chosen.
  uint64_t PutAt(uint32_t slot, const HandlePair& pair) {
    return PutAt(slot, NextGeneration(), pair);
  }

  // Stores the handle's pair in `pair`. Returns false if the pair was overwritten, or if another
  // process issued the handle.
  bool Find(uint64_t handle, HandlePair* pair) const {
    const uint32_t slot = handle & ((1u << kSlotBits) - 1);
    if (!IsIssuer(handle) || slot >= kSlots) return false;
    const Slot& at = slots_[slot];
    const uint64_t generation = handle >> kSlotBits & kGenerationMask;
    // Acquire: sees the halves of this generation, or later ones.
    if (at.generation.load(std::memory_order_acquire) != generation) return false;
    pair->ours = at.ours.load(std::memory_order_relaxed);
    pair->next = at.next.load(std::memory_order_relaxed);
    pair->has_next = at.has_next.load(std::memory_order_relaxed);
    // A reader that got half of a later pair sees, after this fence, that the generation has
    // changed.
    std::atomic_thread_fence(std::memory_order_acquire);
    return at.generation.load(std::memory_order_relaxed) == generation;
  }

 private:
  struct Slot {
    std::atomic<uint64_t> generation{0};  // 0: being written
    std::atomic<uint64_t> ours{0}, next{0};
    std::atomic<bool> has_next{false};
  };

  // Returns the next generation, never 0. Relaxed: orders nothing.
  uint64_t NextGeneration() {
    const uint64_t next = next_.fetch_add(1, std::memory_order_relaxed) & kGenerationMask;
    return next != 0 ? next : NextGeneration();
  }

  uint64_t PutAt(uint32_t slot, uint64_t generation, const HandlePair& pair) {
    Slot& at = slots_[slot];
    // Relaxed, and the fence: a reader of a new half sees that the old generation is over.
    at.generation.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    at.ours.store(pair.ours, std::memory_order_relaxed);
    at.next.store(pair.next, std::memory_order_relaxed);
    at.has_next.store(pair.has_next, std::memory_order_relaxed);
    // Release: a reader of the generation sees both halves.
    at.generation.store(generation, std::memory_order_release);
    return issuer_ << kKindShift | generation << kSlotBits | slot;
  }

  // All zeros, so that the file of the library does not hold the slots.
  uint64_t issuer_ = 0;
  std::atomic<uint64_t> next_{0};
  std::array<Slot, kSlots> slots_{};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_NEXT_HANDLE_PAIRS_H_
