// Streams and graphs of the stand-in: everything runs at once, unless the stream captures.
#ifndef TESTS_GPU_FAKE_CUDA_H_
#define TESTS_GPU_FAKE_CUDA_H_

#include <functional>
#include <vector>

namespace nccl_pulse::fake {

struct Graph {
  std::vector<std::function<void()>> nodes;
};

struct Stream {
  Graph* capture = nullptr;  // null: not capturing
};

}  // namespace nccl_pulse::fake

#endif  // TESTS_GPU_FAKE_CUDA_H_
