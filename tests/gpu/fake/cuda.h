// Streams and graphs of the stand-in: everything runs at once, unless the stream captures. NCCL's
// kernels alone take time, until their data has been exchanged; events of the driver see that.
#ifndef TESTS_GPU_FAKE_CUDA_H_
#define TESTS_GPU_FAKE_CUDA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace nccl_pulse::fake {

struct Graph {
  std::vector<std::function<void()>> nodes;
};

// The kernels of a stream: how many were enqueued, and when those that have ended did. An event may
// outlive its stream.
class Timeline {
 public:
  void KernelEnqueued();
  void KernelEnded();
  uint64_t enqueued() const;
  // When the first `kernels` had ended, 0: they have not.
  uint64_t EndNs(uint64_t kernels) const;

 private:
  mutable std::mutex mutex_;
  uint64_t enqueued_ = 0;
  std::vector<uint64_t> end_ns_;
};

struct Stream {
  Graph* capture = nullptr;  // null: not capturing
  bool invalidated = false;  // the capture, by something that must not happen in one
  const std::shared_ptr<Timeline> timeline = std::make_shared<Timeline>();
};

}  // namespace nccl_pulse::fake

#endif  // TESTS_GPU_FAKE_CUDA_H_
