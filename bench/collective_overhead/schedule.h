// Schedule orders the runs of a block's configurations.
//
// A block is a random permutation followed by its mirror image: ABBA or BAAB for two
// configurations. Each configuration runs twice per block, and its mean counts. So drift that is
// linear over a block (clocks, temperature) cancels exactly. The permutation varies each
// configuration's predecessor. Sets (sets.h) are also started in random order, so that none is
// always the first on its GPU.
//
// Thread: one user. The same seed gives the same order.
#ifndef BENCH_COLLECTIVE_OVERHEAD_SCHEDULE_H_
#define BENCH_COLLECTIVE_OVERHEAD_SCHEDULE_H_

#include <cstdint>
#include <vector>

namespace nccl_pulse::overhead {

class Schedule {
 public:
  explicit Schedule(uint64_t seed) : state_(seed) {}

  // Returns the order of a block of `members`: twice as long.
  std::vector<int> NextBlock(std::vector<int> members);

  // Returns `members` in random order.
  std::vector<int> Shuffle(std::vector<int> members);

  uint64_t NextRandom();

 private:
  uint64_t state_;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SCHEDULE_H_
