// In which order the configurations of a block run.
//
// A block is a random permutation followed by its mirror image: with two configurations ABBA or
// BAAB. Each configuration runs twice per block and is taken at its mean, so whatever drifts
// linearly over a block (clocks, temperature) cancels exactly; that nobody always comes after the
// same neighbour is what the permutation is for. Sets are started in a random order as well, so
// that none is always the first on its GPU.
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

  // The order of a block of `members`: twice as long.
  std::vector<int> NextBlock(std::vector<int> members);

  // In a random order.
  std::vector<int> Shuffle(std::vector<int> members);

  uint64_t NextRandom();

 private:
  uint64_t state_;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SCHEDULE_H_
