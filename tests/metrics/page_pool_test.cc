#include "metrics/page_pool.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

class Pool {
 public:
  // Pages 1 to `pages` are free.
  explicit Pool(uint32_t pages)
      : links_(new PagePool::Link[pages + 1]()), pool_(links_.get(), pages + 1) {
    for (uint32_t page = 1; page <= pages; ++page) pool_.Free(static_cast<uint16_t>(page));
  }
  PagePool* operator->() { return &pool_; }

 private:
  std::unique_ptr<PagePool::Link[]> links_;
  PagePool pool_;
};

TEST(PagePool, HandsOutEachPageOnce) {
  Pool pool(100);
  EXPECT_EQ(pool->free_pages(), 100u);
  std::vector<bool> seen(101);
  for (int i = 0; i < 100; ++i) {
    const uint16_t page = pool->Allocate();
    ASSERT_GT(page, 0);
    ASSERT_LE(page, 100);
    EXPECT_FALSE(seen[page]);
    seen[page] = true;
  }
  EXPECT_EQ(pool->free_pages(), 0u);
  EXPECT_EQ(pool->missed(), 0u);
  EXPECT_EQ(pool->Allocate(), kNoPage);
  EXPECT_EQ(pool->missed(), 1u);
  pool->Free(42);
  EXPECT_EQ(pool->free_pages(), 1u);
  EXPECT_EQ(pool->Allocate(), 42);
  EXPECT_EQ(pool->Allocate(), kNoPage);
}

// Threads take and give back as fast as they can. `pages` below the number of threads makes every
// page come back while others are still looking at the old head (ABA).
void TakeAndGiveBack(uint32_t pages, int threads, int rounds) {
  Pool pool(pages);
  // Plain: with a page in one hand only, nothing else may touch its number. A second owner is a
  // data race for ThreadSanitizer and a wrong total for everybody.
  std::vector<uint64_t> uses(pages + 1);
  std::vector<std::atomic<int>> owners(pages + 1);
  std::atomic<int> owned_twice{0};
  std::atomic<uint64_t> taken{0};
  Threads(threads, [&](int) {
    uint64_t mine = 0;
    for (int round = 0; round < rounds; ++round) {
      const uint16_t page = pool->Allocate();
      if (page == kNoPage) continue;
      if (owners[page].fetch_add(1, std::memory_order_relaxed) != 0) ++owned_twice;
      ++uses[page];
      ++mine;
      if (round % 64 == 0) std::this_thread::yield();  // keep it for a while
      owners[page].fetch_sub(1, std::memory_order_relaxed);
      pool->Free(page);
    }
    taken += mine;
  }).Join();
  EXPECT_EQ(owned_twice, 0);
  uint64_t total = 0;
  for (uint64_t use : uses) total += use;
  EXPECT_EQ(total, taken);
  EXPECT_EQ(pool->free_pages(), pages);
  std::vector<bool> seen(pages + 1);
  for (uint32_t i = 0; i < pages; ++i) {
    const uint16_t page = pool->Allocate();
    ASSERT_NE(page, kNoPage) << "a page was lost";
    ASSERT_FALSE(seen[page]) << "a page is on the list twice";
    seen[page] = true;
  }
  EXPECT_EQ(pool->Allocate(), kNoPage);
}

TEST(PagePool, ThreadsNeverShareAPage) { TakeAndGiveBack(500, 4, 50000); }
TEST(PagePool, PagesThatComeBackAtOnce) { TakeAndGiveBack(3, 6, 50000); }

TEST(PagePool, FreeCountNeverRunsBelowZero) {
  Pool pool(1);
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop) {
      const uint16_t page = pool->Allocate();
      if (page != kNoPage) pool->Free(page);
    }
  });
  uint32_t most = 0;
  for (int i = 0; i < 200000; ++i) {
    const uint16_t page = pool->Allocate();
    if (page != kNoPage) pool->Free(page);
    most = std::max(most, pool->free_pages());
  }
  stop = true;
  worker.join();
  EXPECT_LE(most, 3u) << "one page, and two threads that are just giving one back";
}

}  // namespace
}  // namespace nccl_pulse
