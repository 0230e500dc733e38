#include "metrics/page_pool.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

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
