// Sets of numbers from 0 on, which are joined: of processes or endpoints, those that share
// something.
//
// Thread: one at a time. Cost: nearly constant for each call.
#ifndef EXPORTER_BASE_DISJOINT_SETS_H_
#define EXPORTER_BASE_DISJOINT_SETS_H_

#include <cstddef>
#include <numeric>
#include <vector>

namespace nccl_pulse {

class DisjointSets {
 public:
  explicit DisjointSets(std::size_t elements = 0) : parents_(elements) {
    std::iota(parents_.begin(), parents_.end(), std::size_t{0});
  }

  // A new element, in a set of its own.
  std::size_t Add() {
    parents_.push_back(parents_.size());
    return parents_.back();
  }
  // The number of the element's set, which is that of one of its elements.
  std::size_t SetOf(std::size_t element) {
    while (parents_[element] != element) {
      element = parents_[element] = parents_[parents_[element]];
    }
    return element;
  }
  // The joined set has the number that the set of `kept` has.
  void Join(std::size_t element, std::size_t kept) { parents_[SetOf(element)] = SetOf(kept); }

 private:
  std::vector<std::size_t> parents_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_DISJOINT_SETS_H_
