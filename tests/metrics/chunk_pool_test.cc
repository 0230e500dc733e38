#include "metrics/chunk_pool.h"

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
  // Chunks 1 to `chunks` are free.
  explicit Pool(uint32_t chunks)
      : links_(new ChunkPool::Link[chunks + 1]()), pool_(links_.get(), chunks + 1) {
    for (uint32_t chunk = 1; chunk <= chunks; ++chunk) pool_.Free(static_cast<uint16_t>(chunk));
  }
  ChunkPool* operator->() { return &pool_; }

 private:
  std::unique_ptr<ChunkPool::Link[]> links_;
  ChunkPool pool_;
};

TEST(ChunkPool, HandsOutEachChunkOnce) {
  Pool pool(100);
  EXPECT_EQ(pool->free_chunks(), 100u);
  std::vector<bool> seen(101);
  for (int i = 0; i < 100; ++i) {
    const uint16_t chunk = pool->Allocate();
    ASSERT_GT(chunk, 0);
    ASSERT_LE(chunk, 100);
    EXPECT_FALSE(seen[chunk]);
    seen[chunk] = true;
  }
  EXPECT_EQ(pool->free_chunks(), 0u);
  EXPECT_EQ(pool->missed(), 0u);
  EXPECT_EQ(pool->Allocate(), kNoChunk);
  EXPECT_EQ(pool->missed(), 1u);
  pool->Free(42);
  EXPECT_EQ(pool->free_chunks(), 1u);
  EXPECT_EQ(pool->Allocate(), 42);
  EXPECT_EQ(pool->Allocate(), kNoChunk);
}

TEST(ChunkPool, FreeCountNeverRunsBelowZero) {
  Pool pool(1);
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop) {
      const uint16_t chunk = pool->Allocate();
      if (chunk != kNoChunk) pool->Free(chunk);
    }
  });
  uint32_t most = 0;
  for (int i = 0; i < 200000; ++i) {
    const uint16_t chunk = pool->Allocate();
    if (chunk != kNoChunk) pool->Free(chunk);
    most = std::max(most, pool->free_chunks());
  }
  stop = true;
  worker.join();
  EXPECT_LE(most, 3u) << "one chunk, and two threads that are just giving one back";
}

}  // namespace
}  // namespace nccl_pulse
