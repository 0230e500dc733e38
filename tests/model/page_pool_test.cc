// Threads take pages and give them back. Each page has one owner at a time, is empty when it is
// handed out, and none is lost.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kPages = 3;  // page 0 is none

struct Pages : rl::test_suite<Pages, 3> {
  ExecutionBegins begins;
  using Pool = BasicPagePool<CheckedAtomics>;
  Pool::Link links[kPages];
  Pool pool{links, kPages};
  // Plain: a page without an order between its owners is a data race to the checker.
  rl::var<int> content[kPages];

  void before() {
    for (uint16_t page = 1; page < kPages; ++page) {
      content[page]($) = 0;
      pool.Free(page);
    }
  }
  void thread(unsigned) {
    for (int i = 0; i < 2; ++i) {
      const uint16_t page = pool.Allocate();
      if (page == kNoPage) continue;
      RL_ASSERT(content[page]($) == 0);
      content[page]($) = 1;
      content[page]($) = 0;
      pool.Free(page);
    }
  }
  void after() {
    uint32_t pages = 0;
    while (pool.Allocate() != kNoPage) ++pages;
    RL_ASSERT(pages == kPages - 1);
    RL_ASSERT(pool.free_pages() == 0);
  }
};

TEST(PagePool, EachPageHasOneOwner) { EachOrderingMatters<Pages>({"page_pool.h"}, 20000); }

}  // namespace
}  // namespace nccl_pulse
