// Hands out the segment's pages to callbacks and takes them back when a communicator is recycled.
//
// A callback must not fault a page in (that can sleep, or be refused), so only pages that were
// populated beforehand are on the free list; the background thread keeps a reserve there
// (plugin/tracker/tracker_pages.cc). An empty list means less is measured until it has come, and is
// counted here and by the caller.
//
// Thread: any, lock-free, no system call. Cost of Allocate: one compare-and-swap.
#ifndef METRICS_PAGE_POOL_H_
#define METRICS_PAGE_POOL_H_

#include <atomic>
#include <cstdint>

#include "metrics/segment_layout.h"

namespace nccl_pulse {

class PagePool {
 public:
  // `next` has room for `page_count` links and is zero.
  PagePool(std::atomic<uint32_t>* next, uint32_t page_count)
      : next_(next), page_count_(page_count) {}

  // A zeroed page, or kNoPage when none is ready.
  uint16_t Allocate() {
    uint64_t head = head_.load(std::memory_order_acquire);  // sees the link that the pusher wrote
    while (true) {
      const auto page = static_cast<uint16_t>(head);
      if (__builtin_expect(page == kNoPage, 0)) {
        missed_.fetch_add(1, std::memory_order_relaxed);  // a hint for the refill, as below
        return kNoPage;
      }
      const uint64_t next =
          next_[page].load(std::memory_order_relaxed);  // stale only if the tag moved
      // Acquire: the page's zeroes were written before it was pushed.
      if (head_.compare_exchange_weak(head, NextTag(head) | next, std::memory_order_acquire)) {
        free_.fetch_sub(1, std::memory_order_relaxed);  // a hint for the refill, no order needed
        return page;
      }
    }
  }

  // `page` must be zeroed and populated.
  void Free(uint16_t page) {
    // Before the page can be taken: the hint never falls below zero.
    free_.fetch_add(1, std::memory_order_relaxed);
    uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      next_[page].store(static_cast<uint16_t>(head), std::memory_order_relaxed);  // released below
      // Relaxed on failure: only the number of the page below is used.
    } while (!head_.compare_exchange_weak(head, NextTag(head) | page, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  // How often there was none: what the refill goes by.
  uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }
  uint32_t free_pages() const { return free_.load(std::memory_order_relaxed); }
  uint32_t page_count() const { return page_count_; }

 private:
  // Upper 48 bits count the operations, so that a page that left and came back in between (ABA) is
  // seen.
  static uint64_t NextTag(uint64_t head) { return (head & ~uint64_t{0xffff}) + 0x10000; }

  std::atomic<uint64_t> head_{kNoPage};
  std::atomic<uint32_t> free_{0};
  std::atomic<uint64_t> missed_{0};
  std::atomic<uint32_t>* next_;
  uint32_t page_count_;
};

}  // namespace nccl_pulse

#endif  // METRICS_PAGE_POOL_H_
