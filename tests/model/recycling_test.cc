// A record ends, is emptied and gets its next owner while a reader copies it: the copy is of one
// owner, and what the first one counted is in the record or in the sums, never in both or neither.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kCounted = 5;
constexpr uint64_t kFinalizedNs = 7;

struct Recycling : rl::test_suite<Recycling, 3> {
  ExecutionBegins begins;
  BasicRecycleEpoch<CheckedAtomics> epoch;
  Relaxed<uint64_t, CheckedAtomics> sum;
  BasicRecordLife<CheckedAtomics> life;
  rl::atomic<int> is_free{0};
  Relaxed<uint64_t, CheckedAtomics> identity, name, finalized_ns, counted;

  void before() {
    RL_ASSERT(life.Begin() == 1);
    identity.store(1);
    name.store(1);
    counted.store(kCounted);
    life.Publish();
  }
  void thread(unsigned index) {
    if (index == 0) return Recycle();
    if (index == 1) return Prepare();
    Read();
  }
  // RecordWriter::Finalize and Recycle.
  void Recycle() {
    finalized_ns.store(kFinalizedNs);
    life.Finalize();
    epoch.Begin();
    life.End();
    sum.add(counted.load());
    for (auto* field : {&identity, &name, &finalized_ns, &counted}) field->store(0);
    epoch.End();
    is_free($).store(1, rl::mo_release);
  }
  // RecordWriter::Prepare and Publish, on another thread: the runtime's lock orders the two.
  void Prepare() {
    rl::linear_backoff wait;
    while (is_free($).load(rl::mo_acquire) == 0) wait.yield($);
    RL_ASSERT(life.Begin() == 3);
    identity.store(3);
    name.store(3);
    life.Publish();
  }
  // ReadSegment.
  void Read() {
    for (int attempt = 0; attempt < 3; ++attempt) {
      const uint64_t entered = epoch.Enter();
      uint64_t total = sum.load();
      const auto view = life.Enter();
      if (view.state != CommunicatorState::kFree) {
        const uint64_t of = identity.load();
        const uint64_t called = name.load();
        const uint64_t ended_ns = finalized_ns.load();
        const uint64_t count = counted.load();
        if (life.IsSame(view)) {
          RL_ASSERT(of == view.generation);
          RL_ASSERT(called == view.generation);
          RL_ASSERT(count == (of == 1 ? kCounted : 0));
          RL_ASSERT(view.state != CommunicatorState::kFinalized || ended_ns == kFinalizedNs);
          total += count;
        }
      }
      if (epoch.IsWhole(entered)) RL_ASSERT(total == kCounted);
    }
  }
};

TEST(Recycling, ACopyIsOfOneOwnerAndNothingIsMissing) {
  EachOrderingMatters<Recycling>({"record_life.h"}, 30000);
}

}  // namespace
}  // namespace nccl_pulse
