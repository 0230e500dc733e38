// PagePool hands out the segment's pages to callbacks and takes them back on recycling.
//
// A callback must not fault a page in: that can sleep, or be refused. So the free list holds only
// populated pages. The background thread keeps a reserve there (plugin/tracker/ready_pages.h).
// While the list is empty, fewer events are measured; pool and caller count the misses.
//
// The free list is a stack of page numbers: head -> next[head] -> ... -> kNoPage. The head also
// counts operations. So a swap fails if a page left and came back since the head was read (ABA).
//
// Thread: any, lock-free, no system call. Cost of Allocate: one compare-and-swap.
// Explored by //tests/model:page_pool_test.
#ifndef METRICS_PAGE_POOL_H_
#define METRICS_PAGE_POOL_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

inline constexpr uint16_t kNoPage = 0;  // page 0 is never handed out

template <typename Atomics>
class BasicPagePool {
 public:
  using Link = Relaxed<uint32_t, Atomics>;

  // `next` has room for `page_count` links and is zeroed.
  BasicPagePool(Link* next, uint32_t page_count) : next_(next), page_count_(page_count) {}

  // Returns a zeroed page, or kNoPage if none is ready.
  uint16_t Allocate() {
    uint64_t head = head_.load(std::memory_order_acquire);  // sees the link that the pusher wrote
    while (true) {
      const auto page = static_cast<uint16_t>(head);
      if (__builtin_expect(page == kNoPage, 0)) {
        missed_.fetch_add(1);  // a hint for the refill, as free_
        return kNoPage;
      }
      const uint64_t next = next_[page].load();  // stale only if the tag moved
      // Acquire: the page's zeros were written before it was pushed; on failure as above.
      if (head_.compare_exchange_weak(head, NextTag(head) | next, std::memory_order_acquire,
                                      std::memory_order_acquire)) {
        free_.fetch_sub(1);  // a hint for the refill; needs no order
        return page;
      }
    }
  }

  // `page` must be zeroed and populated.
  void Free(uint16_t page) {
    // Before the page can be taken, so that the hint never falls below zero.
    free_.fetch_add(1);
    uint64_t head = head_.load(std::memory_order_relaxed);  // the swap checks it
    do {
      next_[page].store(static_cast<uint16_t>(head));  // released below
      // Release: a thread that takes the page sees its zeros and its link. Relaxed on failure: only
      // the number of the page below is used.
    } while (!head_.compare_exchange_weak(head, NextTag(head) | page, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  // Returns how often no page was ready; the refill depends on it.
  uint64_t missed() const { return missed_.load(); }
  uint32_t free_pages() const { return free_.load(); }
  uint32_t page_count() const { return page_count_; }

 private:
  // The upper 48 bits count the operations.
  static uint64_t NextTag(uint64_t head) { return (head & ~uint64_t{0xffff}) + 0x10000; }

  typename Atomics::template Atomic<uint64_t> head_{kNoPage};
  Relaxed<uint32_t, Atomics> free_{0};
  Relaxed<uint64_t, Atomics> missed_{0};
  Link* next_;
  uint32_t page_count_;
};

using PagePool = BasicPagePool<StdAtomics>;

}  // namespace nccl_pulse

#endif  // METRICS_PAGE_POOL_H_
