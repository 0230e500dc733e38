// Sampler decides which launches are timed. All ranks of a communicator select the same calls,
// without communicating.
//
// The calls of each (communicator, operation, size class) are numbered from 0 when the user makes
// them. A call is timed if the low n bits of a hash of these four values are zero. n follows from
// the budget of timed launches per second and GPU, so it may differ between ranks. A rank with a
// larger n times a subset of the calls of a rank with a smaller n. The 64-bit hash has no period in
// common with a program, so each operation and size class is sampled in proportion. The first two
// calls of each operation and size class include set-up and are not timed. Plugins of other
// versions may hash differently, and then time other calls.
//
// n follows the launch rate with a delay. After an idle minute all launches would be timed, and a
// burst would exceed the budget. So there is also an allowance of one second's budget, renewed each
// time n is adapted. While it is used up, for up to a second, a rank does not time calls that other
// ranks time.
//
// The user can also set a fixed n ("one-in-16"). Then there is no allowance.
//
// Thread: ShouldTime and Spend any; Adapt and SetBudget the poller.
// Cost of ShouldTime: four multiplications and shifts.
#ifndef PLUGIN_TRACKER_SAMPLER_H_
#define PLUGIN_TRACKER_SAMPLER_H_

#include <climits>
#include <cstdint>

#include "metrics/agreed_call.h"
#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class Sampler {
 public:
  // A timed launch delays its GPU by about 5 us (docs/timing.md), so 100 per second cost 0.05 %.
  static constexpr int kTimedPerSecond = 100;
  // One in 64, until the rate is known.
  static constexpr int kInitialExponent = 6;
  static constexpr uint64_t kUntimedFirstCalls = kSetUpCalls;

  // `timed_per_second`: budget per second and GPU. Negative: -m times one launch in m, rounded up
  // to a power of two.
  explicit Sampler(int timed_per_second = kTimedPerSecond) { SetBudget(timed_per_second); }

  // Returns a communicator's part of the hash; computed once.
  static uint64_t SeedOf(uint64_t comm_id) { return CallSeed(comm_id); }

  // True if the call is timed. `kind_seed`: KindSeed, of communicator, operation and size class.
  bool ShouldTime(uint64_t kind_seed, uint64_t call_number) const {
    return call_number >= kUntimedFirstCalls && MayTime(kind_seed, call_number);
  }
  // ShouldTime, without the check for the first calls of a kind.
  bool MayTime(uint64_t kind_seed, uint64_t call_number) const {
    return (CallHash(kind_seed, call_number) & zero_bits_.load()) == 0;
  }

  bool ShouldTime(uint64_t seed, uint32_t op, uint32_t size_class, uint64_t call_number) const {
    return ShouldTime(KindSeed(seed, op, size_class), call_number);
  }

  // Takes one launch from the allowance. Returns false if it is used up. Concurrent threads may
  // overdraw it by one each.
  bool Spend() {
    if (allowance_.load() <= 0) return false;
    allowance_.fetch_sub(1);  // rare: only sampled launches
    return true;
  }

  int exponent() const { return __builtin_popcount(zero_bits_.load()); }

  // Changes the budget; the next Adapt finds n for it. Callbacks load exponent and allowance
  // separately, so a callback at that moment may decide by the old exponent.
  void SetBudget(int timed_per_second) {
    timed_per_second_ = timed_per_second;
    if (timed_per_second < 0) return TimeShare();
    allowance_.store(timed_per_second);
  }

  // Adapts n to the launches in the last period. Call once a second. `gpus`: each has its own
  // budget.
  void Adapt(double launches_per_second, int gpus) {
    if (timed_per_second_ < 0) return TimeShare();
    const double budget = static_cast<double>(timed_per_second_) * (gpus > 0 ? gpus : 1);
    allowance_.store(static_cast<int>(budget));  // see Spend
    const int current = exponent();
    int wanted = 0;
    while (wanted < kMostSamplingExponent &&
           launches_per_second / static_cast<double>(1 << wanted) > budget) {
      ++wanted;
    }
    // Lowers n only if the rate is well below the step, so that n does not oscillate.
    if (wanted < current &&
        launches_per_second / static_cast<double>(1 << (current - 1)) > budget * 0.8) {
      return;
    }
    StoreExponent(wanted);
  }

 private:
  // Sets the fixed n of a negative budget.
  void TimeShare() {
    int exponent = 0;
    while (exponent < kMostSamplingExponent && (1 << exponent) < -timed_per_second_) ++exponent;
    StoreExponent(exponent);
    allowance_.store(INT_MAX);  // practically unlimited
  }

  void StoreExponent(int exponent) { zero_bits_.store((1u << exponent) - 1); }

  int timed_per_second_ = 0;                                   // poller
  Relaxed<uint32_t> zero_bits_{(1u << kInitialExponent) - 1};  // mask of the low n bits
  Relaxed<int> allowance_{0};
};

// Part of the cache line of Instruments that most callbacks read.
static_assert(sizeof(Sampler) == 12);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_SAMPLER_H_
