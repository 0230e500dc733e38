// ChunkPool hands out the segment's chunks (2 KiB for a histogram or counters) to callbacks and
// takes them back when a communicator's record is recycled.
//
// A callback must not fault memory in: that can sleep, or be refused. So the free list holds only
// populated chunks, and the background thread refills it (plugin/tracker/ready_chunks.h). While the
// list is empty, fewer events are measured; pool and caller count the misses.
//
// The free list is a stack of chunk numbers: head -> next[head] -> ... -> kNoChunk. The head also
// counts pushes and pops, so a swap fails if a chunk left and came back meanwhile (ABA).
//
// Thread: any, lock-free, no system call. Cost of Allocate: one compare-and-swap.
// Explored by tests/model/chunk_pool_test.cc.
#ifndef METRICS_CHUNK_POOL_H_
#define METRICS_CHUNK_POOL_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

inline constexpr uint16_t kNoChunk = 0;  // chunk 0 is never handed out

template <typename Atomics>
class BasicChunkPool {
 public:
  using Link = Relaxed<uint32_t, Atomics>;

  // `next` has room for `chunk_count` links and is zeroed.
  BasicChunkPool(Link* next, uint32_t chunk_count) : next_(next), chunk_count_(chunk_count) {}

  // Returns a zeroed chunk, or kNoChunk if none is ready.
  uint16_t Allocate() {
    uint64_t head = head_.load(std::memory_order_acquire);  // sees the link that the pusher wrote
    while (true) {
      const auto chunk = static_cast<uint16_t>(head);
      if (__builtin_expect(chunk == kNoChunk, 0)) {
        missed_.fetch_add(1);  // a hint for the refill; needs no order
        return kNoChunk;
      }
      const uint64_t next = next_[chunk].load();  // stale only if the tag moved
      // Acquire: sees the chunk's zeros, which were written before it was pushed. On failure: sees
      // the new head's link.
      if (head_.compare_exchange_weak(head, NextTag(head) | next, std::memory_order_acquire,
                                      std::memory_order_acquire)) {
        free_.fetch_sub(1);  // a hint for the refill; needs no order
        return chunk;
      }
    }
  }

  // `chunk` must be zeroed and populated.
  void Free(uint16_t chunk) {
    // Before the chunk can be taken, so that the hint never falls below zero.
    free_.fetch_add(1);
    uint64_t head = head_.load(std::memory_order_relaxed);  // the swap checks it
    do {
      next_[chunk].store(static_cast<uint16_t>(head));  // released below
      // Release: a thread that takes the chunk sees its zeros and its link. Relaxed on failure:
      // only the number of the chunk below is used.
    } while (!head_.compare_exchange_weak(head, NextTag(head) | chunk, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  // Returns how often no chunk was ready; the refill depends on it.
  uint64_t missed() const { return missed_.load(); }
  uint32_t free_chunks() const { return free_.load(); }
  uint32_t chunk_count() const { return chunk_count_; }

 private:
  // The upper 48 bits count pushes and pops.
  static uint64_t NextTag(uint64_t head) { return (head & ~uint64_t{0xffff}) + 0x10000; }

  typename Atomics::template Atomic<uint64_t> head_{kNoChunk};
  Relaxed<uint32_t, Atomics> free_{0};  // number of chunks in the free list
  Relaxed<uint64_t, Atomics> missed_{0};
  Link* next_;
  uint32_t chunk_count_;
};

using ChunkPool = BasicChunkPool<StdAtomics>;

}  // namespace nccl_pulse

#endif  // METRICS_CHUNK_POOL_H_
