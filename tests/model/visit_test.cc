// A thread counts in a record without a claim, while the record is closed, emptied and given to the
// next communicator, whose own thread counts there then. No addition is lost, and none lands in the
// record of another owner.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

struct Visits : rl::test_suite<Visits, 3> {
  ExecutionBegins begins;
  BasicVisit<CheckedAtomics> visit;
  Ordered<uint32_t, CheckedAtomics> context;  // of the owner, 0: closed
  Relaxed<uint32_t, CheckedAtomics> cell;
  uint32_t added[2] = {0, 0};
  uint32_t recycled = 0;

  void before() { context.publish(1); }
  void thread(unsigned index) {
    if (index == 2) return Recycle();
    for (int i = 0; i < 2; ++i) Call(index);
  }
  // A callback of the first owner, or of the second.
  void Call(unsigned index) {
    if (context.acquire() != index + 1) return;
    const BasicVisit<CheckedAtomics>::Stay stay(visit);
    if (context.load() != index + 1) return;
    cell.add(1);
    ++added[index];
  }
  void Recycle() {
    context.store(0);
    if (!visit.IsOver()) return;
    recycled = cell.load();
    cell.store(0);
    context.publish(2);
  }
  void after() {
    RL_ASSERT(recycled == 0 || recycled == added[0]);
    RL_ASSERT(cell.load() + recycled == added[0] + added[1]);
    RL_ASSERT(added[1] == 0 || cell.load() == added[1]);
  }
};

TEST(Visit, NobodyIsThereWhenItIsOver) { EachOrderingMatters<Visits>({"visit.h"}, 30000); }

}  // namespace
}  // namespace nccl_pulse
