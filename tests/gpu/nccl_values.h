// What the ranks of nccl_program send, and what must come of it, in every data type.
#ifndef TESTS_GPU_NCCL_VALUES_H_
#define TESTS_GPU_NCCL_VALUES_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace nccl_pulse {

// Small enough for every data type to add up over eight ranks without rounding.
inline int ValueOf(int rank, uint64_t i) { return (rank + 1) * static_cast<int>(i % 3 + 1); }

inline int SumOf(int nranks, uint64_t i) {
  return nranks * (nranks + 1) / 2 * static_cast<int>(i % 3 + 1);
}

// So many elements as they stand in memory.
std::vector<char> Encoded(int datatype, uint64_t count,
                          const std::function<int(uint64_t)>& value_of);

}  // namespace nccl_pulse

#endif  // TESTS_GPU_NCCL_VALUES_H_
