// Joins elements, numbered from 0, into disjoint sets: for example, endpoints that share a process.
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

  // Adds an element in a set of its own, and returns its number.
  std::size_t Add() {
    parents_.push_back(parents_.size());
    return parents_.back();
  }
  // Returns the number of the element's set, which is the number of one of its elements.
  std::size_t SetOf(std::size_t element) {
    while (parents_[element] != element) {
      element = parents_[element] = parents_[parents_[element]];
    }
    return element;
  }
  // Joins two sets. The result keeps the number of the set of `kept`.
  void Join(std::size_t element, std::size_t kept) { parents_[SetOf(element)] = SetOf(kept); }

 private:
  std::vector<std::size_t> parents_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_DISJOINT_SETS_H_
