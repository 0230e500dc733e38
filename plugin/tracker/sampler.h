// Decides which launches are timed. All ranks of a communicator decide alike, without a message.
//
// Call number j of (communicator, operation, size class), counted from 0 where the user calls, is
// timed when the low n bits of a hash of the four are zero. n follows from the launches per second
// and GPU that the budget allows, so ranks may differ in n. A rank with a larger n times a subset
// of what one with a smaller n times. The hash is a good 64-bit one, so a periodic program cannot
// run in step with it: every (operation, size class) is reached in proportion. The first two calls
// of each carry set-up and are not timed. Ranks whose plugins hash differently (other versions)
// each time calls of their own.
//
// n follows the rate with a delay. After an idle minute everything would be timed, and a burst
// would then cost the GPU more than the budget. So there is also an allowance of one second's
// budget, renewed with n. When it runs out, a rank misses calls that the others time, for a second.
//
// Instead of a budget n itself can be given ("one-in-16"), whatever the rate: then there is no
// allowance to run out, and what it costs is up to who asked for it.
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
  // A timed launch holds its GPU up by about 5 us (docs/timing.md); 100 a second cost
  // 0.05 %.
  static constexpr int kTimedPerSecond = 100;
  static constexpr int kMaxExponent = 24;
  // Until the rate is known: one in 64.
  static constexpr int kInitialExponent = 6;
  static constexpr uint64_t kUntimedFirstCalls = kSetUpCalls;

  // The budget: so many launches are timed a second and GPU. Negative: -m is one in m of them, a
  // power of two.
  explicit Sampler(int timed_per_second = kTimedPerSecond) { SetBudget(timed_per_second); }

  // A communicator's share in the hash, made once.
  static uint64_t SeedOf(uint64_t comm_id) { return CallSeed(comm_id); }

  bool ShouldTime(uint64_t kind_seed, uint64_t call_number) const {
    return call_number >= kUntimedFirstCalls && MayTime(kind_seed, call_number);
  }
  // The same of a call behind the first ones of its kind.
  bool MayTime(uint64_t kind_seed, uint64_t call_number) const {
    return (CallHash(kind_seed, call_number) & zero_bits_.load()) == 0;
  }

  bool ShouldTime(uint64_t seed, uint32_t op, uint32_t size_class, uint64_t call_number) const {
    return ShouldTime(KindSeed(seed, op, size_class), call_number);
  }

  // Takes one timed launch from the allowance; false when it is used up. Several threads at once
  // may overdraw it by one each.
  bool Spend() {
    if (allowance_.load() <= 0) return false;
    allowance_.fetch_sub(1);  // rare: sampled launches alone
    return true;
  }

  int exponent() const { return __builtin_popcount(zero_bits_.load()); }

  // Another budget from now on; Adapt, called next, finds n for it. Callbacks read exponent and
  // allowance, each for itself: who sees one old and one new times a call more or less.
  void SetBudget(int timed_per_second) {
    timed_per_second_ = timed_per_second;
    if (timed_per_second < 0) return TimeShare();
    allowance_.store(timed_per_second);
  }

  // Once a second: the launches of the last period, on so many GPUs, each with a budget of its own.
  void Adapt(double launches_per_second, int gpus) {
    if (timed_per_second_ < 0) return TimeShare();
    const double budget = static_cast<double>(timed_per_second_) * (gpus > 0 ? gpus : 1);
    allowance_.store(static_cast<int>(budget));  // see Spend
    const int current = exponent();
    int wanted = 0;
    while (wanted < kMaxExponent &&
           launches_per_second / static_cast<double>(1 << wanted) > budget) {
      ++wanted;
    }
    // Down only when the rate is well below the step, so that a rate near it does not swing.
    if (wanted < current &&
        launches_per_second / static_cast<double>(1 << (current - 1)) > budget * 0.8) {
      return;
    }
    StoreExponent(wanted);
  }

 private:
  void TimeShare() {
    int exponent = 0;
    while (exponent < kMaxExponent && (1 << exponent) < -timed_per_second_) ++exponent;
    StoreExponent(exponent);
    allowance_.store(INT_MAX);  // as good as none
  }

  void StoreExponent(int exponent) { zero_bits_.store((1u << exponent) - 1); }

  int timed_per_second_ = 0;                                   // the poller's
  Relaxed<uint32_t> zero_bits_{(1u << kInitialExponent) - 1};  // as many as the exponent says
  Relaxed<int> allowance_{0};
};

// Most callbacks read one cache line of Instruments, and this is in the middle of it.
static_assert(sizeof(Sampler) == 12);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_SAMPLER_H_
