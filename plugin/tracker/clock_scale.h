// ClockScales holds the scale that converts the CPU's counter to nanoseconds. One thread renews the
// scale, callbacks read it. It takes one cache line.
//
//   writer                           reader
//   fence                            read number n; 0: there is no scale
//   store scale n + 1 in the other   read scale n in place n % 2
//   place
//   number = n + 1                   fence; read the number again; if it changed, retry
//
// A retry means that a newer scale was stored during the read. The clock renews the scale every
// 100 ms, so only a thread that is taken off the CPU retries more than once.
//
// Thread: Store one; Read any. Cost: five loads.
// Explored by tests/model/clock_scale_test.cc.
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
    // Release: a reader that sees a new field also sees number - 1 or later.
    Atomics::Fence(std::memory_order_release);
    Cells& cells = cells_[number % 2];
    cells.counter.store(scale.counter);
    cells.ns.store(scale.ns);
    cells.ns_per_tick_q32.store(scale.ns_per_tick_q32);
    number_.publish(number);  // with the fields
  }
  // Returns false if there is no scale.
  bool Read(ClockScale* scale) const {
    uint64_t number;
    do {
      number = number_.acquire();  // sees the fields
      if (__builtin_expect(number == 0, 0)) return false;
      const Cells& cells = cells_[number % 2];
      *scale = {cells.counter.load(), cells.ns.load(), cells.ns_per_tick_q32.load()};
      Atomics::Fence(std::memory_order_acquire);  // the fields are read before the number
    } while (__builtin_expect(number_.load() != number, 0));
    return true;
  }

 private:
  struct Cells {
    Relaxed<uint64_t, Atomics> counter, ns, ns_per_tick_q32;
  };
  Ordered<uint64_t, Atomics> number_;  // of the newest scale
  Cells cells_[2];
};

using ClockScales = BasicClockScales<StdAtomics>;
static_assert(sizeof(ClockScales) == 64);

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_CLOCK_SCALE_H_
