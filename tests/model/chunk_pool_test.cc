// Threads take chunks and give them back. Each chunk has one owner at a time, is empty when it is
// handed out, and none is lost.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kChunks = 3;  // chunk 0 is none

struct Chunks : rl::test_suite<Chunks, 3> {
  ExecutionBegins begins;
  using Pool = BasicChunkPool<CheckedAtomics>;
  Pool::Link links[kChunks];
  Pool pool{links, kChunks};
  // Plain: a chunk without an order between its owners is a data race to the checker.
  rl::var<int> content[kChunks];

  void before() {
    for (uint16_t chunk = 1; chunk < kChunks; ++chunk) {
      content[chunk]($) = 0;
      pool.Free(chunk);
    }
  }
  void thread(unsigned) {
    for (int i = 0; i < 2; ++i) {
      const uint16_t chunk = pool.Allocate();
      if (chunk == kNoChunk) continue;
      RL_ASSERT(content[chunk]($) == 0);
      content[chunk]($) = 1;
      content[chunk]($) = 0;
      pool.Free(chunk);
    }
  }
  void after() {
    uint32_t chunks = 0;
    while (pool.Allocate() != kNoChunk) ++chunks;
    RL_ASSERT(chunks == kChunks - 1);
    RL_ASSERT(pool.free_chunks() == 0);
  }
};

TEST(ChunkPool, EachChunkHasOneOwner) { EachOrderingMatters<Chunks>({"chunk_pool.h"}, 20000); }

}  // namespace
}  // namespace nccl_pulse
