// Two callbacks and a recycler want one lane. No addition is lost, and none lands in the record of
// the next owner.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

struct Callbacks : rl::test_suite<Callbacks, 3> {
  ExecutionBegins begins;
  BasicRecordLife<CheckedAtomics> life;
  BasicLaneClaim<CheckedAtomics> claim;
  Relaxed<uint32_t, CheckedAtomics> cell;
  uint32_t generation = 0;
  uint32_t added[2] = {0, 0};
  uint32_t recycled = 0;

  void before() {
    generation = life.Begin();
    life.Publish();
  }
  void thread(unsigned index) {
    if (index == 2) return Recycle();
    for (int i = 0; i < 2; ++i) {
      if (!claim.TryClaim()) continue;
      if (life.IsOf(generation)) {
        cell.add(1);
        ++added[index];
      }
      claim.Release();
    }
  }
  void Recycle() {
    if (!claim.TryClaim()) return;
    life.End();
    recycled = cell.load();
    cell.store(0);
    claim.Release();
  }
  void after() {
    RL_ASSERT(cell.load() + recycled == added[0] + added[1]);
    RL_ASSERT(recycled == 0 || life.state() == CommunicatorState::kFree);
  }
};

TEST(LaneClaim, NoAdditionIsLost) { EachOrderingMatters<Callbacks>({"lane_claim.h"}, 20000); }

}  // namespace
}  // namespace nccl_pulse
