// How the CPU's counter becomes nanoseconds: renewed by one thread, read by callbacks, on one cache
// line.
//
//   writer                           reader
//   fence                            number: 0? there is no scale
//   scale n + 1, in the other place  scale n, in place n % 2
//   number = n + 1                   fence, number once more: another one? again
//
// A reader that begins again has seen a scale being written which is two newer than its own. The
// clock renews it every 100 ms, so that happens to a thread that was taken off the CPU alone.
//
// Thread: Store one; Read any. Cost: four loads.
// Explored by //tests/model:clock_scale_test.
#ifndef PLUGIN_TRACKER_CLOCK_SCALE_H_
#define PLUGIN_TRACKER_CLOCK_SCALE_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

// ns + (counter's difference) * ns_per_tick
struct ClockScale {
  uint64_t counter, ns;
  uint64_t ns_per_tick_q32;  // fixed point, 32 fraction bits
};

template <typename Atomics>
class alignas(64) BasicClockScales {
 public:
  void Store(const ClockScale& scale) {
    const uint64_t number = number_.load() + 1;
    // Release: who sees a new field finds the number before this one, or a later one.
    Atomics::Fence(std::memory_order_release);
    Cells& cells = cells_[number % 2];
    cells.counter.store(scale.counter);
    cells.ns.store(scale.ns);
    cells.ns_per_tick_q32.store(scale.ns_per_tick_q32);
    number_.publish(number);  // with the fields
  }
  // False: there is none.
  bool Read(ClockScale* scale) const {
    uint64_t number;
    do {
      number = number_.acquire();  // sees the fields
      if (__builtin_expect(number == 0, 0)) return false;
      const Cells& cells = cells_[number % 2];
      *scale = {cells.counter.load(), cells.ns.load(), cells.ns_per_tick_q32.load()};
      Atomics::Fence(std::memory_order_acquire);  // the fields come before the second look
    } while (__builtin_expect(number_.load() != number, 0));
    return true;
  }

 private:
  struct Cells {
    Relaxed<uint64_t, Atomics> counter, ns, ns_per_tick_q32;
  };
  Ordered<uint64_t, Atomics> number_;  // of the newest
  Cells cells_[2];
};

using ClockScales = BasicClockScales<StdAtomics>;
static_assert(sizeof(ClockScales) == 64);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_CLOCK_SCALE_H_
