// Contents of the buffers, and the expected result of each operation.
//
// Element i of rank r is (i + 17 r) mod 61 + 1: small integers, whose sums float32 holds exactly,
// different at each rank, never zero. All contents repeat every 61 elements, so one block of
// expected values is compared with buffers of any size.
//
// Thread: pure functions.
#ifndef BENCH_COLLECTIVE_OVERHEAD_VALUES_H_
#define BENCH_COLLECTIVE_OVERHEAD_VALUES_H_

#include <cstdint>
#include <vector>

#include "bench/collective_overhead/points.h"

namespace nccl_pulse::overhead {

inline constexpr uint64_t kValuePeriod = 61;

inline float ValueOf(uint64_t index, int rank) {
  return static_cast<float>((index + 17 * static_cast<uint64_t>(rank)) % kValuePeriod + 1);
}

// A part of the receive buffer: `count` elements that repeat `period`.
struct Segment {
  uint64_t count;
  std::vector<float> period;  // the first kValuePeriod elements
};

// Returns the whole receive buffer of `rank` after the operation with `count` elements.
std::vector<Segment> Expected(Operation operation, uint64_t count, int rank, int nranks);

// Elements that a rank's buffers need.
uint64_t SendCount(Operation operation, uint64_t count, int nranks);
uint64_t ReceiveCount(Operation operation, uint64_t count, int nranks);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_VALUES_H_
