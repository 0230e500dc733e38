// The clock's scale: renewed while somebody reads it.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

struct Renewed : rl::test_suite<Renewed, 2> {
  ExecutionBegins begins;
  BasicClockScales<CheckedAtomics> scales;

  void thread(unsigned index) {
    if (index == 0) {
      for (uint64_t i = 1; i <= 4; ++i) scales.Store({i, 10 * i, 100 * i});
      return;
    }
    uint64_t last = 0;
    for (int i = 0; i < 2; ++i) {
      ClockScale scale;
      if (!scales.Read(&scale)) continue;
      RL_ASSERT(scale.counter != 0 && scale.counter >= last);
      RL_ASSERT(scale.ns == 10 * scale.counter && scale.ns_per_tick_q32 == 100 * scale.counter);
      last = scale.counter;
    }
  }
};

TEST(ClockScale, IsWholeForWhoReadsIt) {
  EachOrderingMatters<Renewed>({"clock_scale.h", "atomic_cell.h"}, 30000);
}

}  // namespace
}  // namespace nccl_pulse
