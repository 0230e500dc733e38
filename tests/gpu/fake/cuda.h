// Streams and graphs of the stand-in: everything runs at once, unless the stream captures. NCCL's
// kernels take time, until their data has been exchanged, and kernels of a program's own; events of
// the driver see that.
//
// With FAKE_NCCL_ASYNC=1 kernels run on a thread of their stream, one after the other, and the host
// goes on, as with a GPU. For programs that use each communicator on one stream: nothing orders its
// kernels on several.
#ifndef TESTS_GPU_FAKE_CUDA_H_
#define TESTS_GPU_FAKE_CUDA_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "simulation/stream.h"

namespace nccl_pulse::fake {

struct Graph {
  std::vector<std::function<void()>> nodes;
};

// The kernels of a stream: how many were enqueued, and when those that have ended did.
class Timeline : public simulation::Timeline {
 public:
  void KernelEnqueued();
  void KernelEnded();
  uint64_t enqueued() const override;
  uint64_t EndNs(uint64_t kernels) const override;
  bool is_computed() const override { return false; }

 private:
  mutable std::mutex mutex_;
  uint64_t enqueued_ = 0;
  std::vector<uint64_t> end_ns_;
};

class Stream : public simulation::Stream {
 public:
  Stream() { timeline = kernel_times; }
  ~Stream();
  // A kernel: behind those before it.
  void Run(std::function<void()> kernel);
  // Returns when all of them have ended.
  void Synchronize();

  Graph* capture = nullptr;  // null: not capturing
  const std::shared_ptr<Timeline> kernel_times = std::make_shared<Timeline>();

 private:
  void RunKernels();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> kernels_;  // the first one runs
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace nccl_pulse::fake

#endif  // TESTS_GPU_FAKE_CUDA_H_
