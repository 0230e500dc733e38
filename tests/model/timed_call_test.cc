// Two writers meet in one entry of the ring of timed calls, a reader looks: it gets one call,
// whole, or none.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

TimedCallFields CallNumber(uint64_t number) {
  const auto low = static_cast<uint32_t>(number);
  return {low, LatencyKind::kDurationStream, low, low, 10 * number, 20 * number, 30 * number};
}

void AssertWhole(uint64_t sequence, const BasicTimedCall<CheckedAtomics>::Copy& copy) {
  const uint64_t number = sequence - 1;
  RL_ASSERT(copy.key == TimedCallKey::Pack(CallNumber(number)));
  RL_ASSERT(copy.bytes == 10 * number);
  RL_ASSERT(copy.duration_ns == 20 * number);
  RL_ASSERT(copy.end_monotonic_ns == 30 * number);
}

struct OneTimedCall : rl::test_suite<OneTimedCall, 3> {
  ExecutionBegins begins;
  using Entry = BasicTimedCall<CheckedAtomics>;
  Entry entry;
  bool written[2] = {false, false};

  void before() { entry.Write(5, CallNumber(5)); }
  void thread(unsigned index) {
    if (index < 2) {
      written[index] = entry.Write(37 + 32 * index, CallNumber(37 + 32 * index));
      return;
    }
    Entry::Copy copy;
    for (int look = 0; look < 2; ++look) {
      const uint64_t sequence = entry.Read(&copy);
      if (sequence != 0) AssertWhole(sequence, copy);
    }
  }
  void after() {
    Entry::Copy copy;
    const uint64_t sequence = entry.Read(&copy);
    RL_ASSERT(written[0] || written[1]);
    RL_ASSERT(sequence == (written[1] ? 70 : 38));
    AssertWhole(sequence, copy);
  }
};

TEST(TimedCall, WholeOrNotThere) {
  // The swap's acquire puts one writer's stores behind those of the writer before. The checker
  // orders stores to one cell as they were executed, so it cannot show them the other way round.
  EachOrderingMatters<OneTimedCall>({"timed_call.h"}, 20000, {"timed_call.h: swap"});
}

}  // namespace
}  // namespace nccl_pulse
