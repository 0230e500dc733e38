#include "bench/collective_overhead/schedule.h"

#include <utility>

namespace nccl_pulse::overhead {

// SplitMix64 (Steele, Lea, Flood 2014). The order of std::shuffle depends on the library; a seed
// must mean the same everywhere.
uint64_t Schedule::NextRandom() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 31);
}

std::vector<int> Schedule::Shuffle(std::vector<int> members) {
  for (std::size_t left = members.size(); left > 1; --left) {
    std::swap(members[left - 1], members[NextRandom() % left]);
  }
  return members;
}

std::vector<int> Schedule::NextBlock(std::vector<int> members) {
  members = Shuffle(std::move(members));
  const std::size_t half = members.size();
  for (std::size_t i = half; i > 0; --i) {
    const int mirrored = members[i - 1];
    members.push_back(mirrored);
  }
  return members;
}

}  // namespace nccl_pulse::overhead
