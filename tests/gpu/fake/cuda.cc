#include "tests/gpu/fake/cuda.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/gpu/nccl_api.h"

namespace nccl_pulse::fake {
namespace {

bool IsAsynchronous() {
  static const bool kIs = [] {
    const char* value = std::getenv("FAKE_NCCL_ASYNC");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return kIs;
}

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// The only kernel of a program's own is tests/gpu/spinner.h, which waits until its flag is set
// or its time is over. Its module and its function are these addresses.
int g_module;
int g_function;

void Spin(std::atomic<uint32_t>* flag, std::chrono::nanoseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (flag[0].load() == 0 && std::chrono::steady_clock::now() < end) {
    flag[1].store(1);
    usleep(1000);
  }
}

}  // namespace

void Timeline::KernelEnqueued() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++enqueued_;
}

void Timeline::KernelEnded() {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_ns_.push_back(NowNs());
}

uint64_t Timeline::enqueued() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return enqueued_;
}

uint64_t Timeline::EndNs(uint64_t kernels) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kernels == 0) return 1;
  return kernels <= end_ns_.size() ? end_ns_[kernels - 1] : 0;
}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Stream::Run(std::function<void()> kernel) {
  if (!IsAsynchronous()) return kernel();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { RunKernels(); });
  kernels_.push_back(std::move(kernel));
  changed_.notify_all();
}

void Stream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return kernels_.empty(); });
}

void Stream::RunKernels() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ended_ || !kernels_.empty(); });
    if (kernels_.empty()) return;
    const std::function<void()> kernel = kernels_.front();
    lock.unlock();
    kernel();
    lock.lock();
    kernels_.pop_front();
    changed_.notify_all();
  }
}

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
extern "C" {

CudaError cudaSetDevice(int) { return 0; }
CudaError cudaGetDeviceCount(int* count) {
  *count = 64;
  return 0;
}

CudaError cudaStreamSynchronize(CudaStream stream) {
  if (stream != nullptr) static_cast<Stream*>(stream)->Synchronize();
  return 0;
}

CudaError cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory != nullptr ? 0 : 2;
}

CudaError cudaFree(void* memory) {
  std::free(memory);
  return 0;
}

CudaError cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, CudaStream stream) {
  cudaStreamSynchronize(stream);
  std::memcpy(to, from, bytes);
  return 0;
}

CudaError cudaMemsetAsync(void* memory, int value, size_t bytes, CudaStream stream) {
  cudaStreamSynchronize(stream);
  std::memset(memory, value, bytes);
  return 0;
}

CudaError cudaStreamCreateWithFlags(CudaStream* stream, unsigned) {
  *stream = new Stream;
  return 0;
}

CudaError cudaStreamDestroy(CudaStream stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}

CudaError cudaStreamBeginCapture(CudaStream stream, int) {
  auto* state = static_cast<Stream*>(stream);
  state->capture = new Graph;
  state->is_capturing = true;
  return 0;
}

CudaError cudaStreamEndCapture(CudaStream stream, CudaGraph* graph) {
  auto* state = static_cast<Stream*>(stream);
  *graph = state->capture;
  state->capture = nullptr;
  state->is_capturing = false;
  const bool invalidated = state->is_invalidated;
  state->is_invalidated = false;
  return invalidated ? 901 : 0;  // cudaErrorStreamCaptureInvalidated
}

CudaError cudaGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph, unsigned long long) {
  *exec = new Graph(*static_cast<Graph*>(graph));
  return 0;
}

// NCCL's part of a replay is a host function on a thread of CUDA's.
CudaError cudaGraphLaunch(CudaGraphExec exec, CudaStream stream) {
  static_cast<Stream*>(stream)->Run([exec] {
    std::thread([exec] {
      for (const auto& node : static_cast<Graph*>(exec)->nodes) node();
    }).join();
  });
  return 0;
}

CudaError cudaGraphExecDestroy(CudaGraphExec exec) {
  delete static_cast<Graph*>(exec);
  return 0;
}

CudaError cudaGraphDestroy(CudaGraph graph) {
  delete static_cast<Graph*>(graph);
  return 0;
}

const char* cudaGetErrorString(CudaError) { return "error of the stand-in"; }

// The driver's functions for kernels of a program's own.

int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::calloc(1, bytes);
  return *memory != nullptr ? 0 : 2;
}
int cuModuleLoadData(void** module, const void* image) {
  *module = &g_module;
  return std::strstr(static_cast<const char*>(image), ".entry spin(") != nullptr ? 0 : 218;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = &g_function;
  return std::strcmp(name, "spin") == 0 ? 0 : 500;
}
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void* stream, void** parameters, void**) {
  auto* flag = *static_cast<std::atomic<uint32_t>**>(parameters[0]);
  const std::chrono::nanoseconds limit(*static_cast<uint64_t*>(parameters[1]));
  auto* on = static_cast<Stream*>(stream);
  if (on->capture != nullptr) {
    on->capture->nodes.emplace_back([flag, limit] { Spin(flag, limit); });
    return 0;
  }
  on->kernel_times->KernelEnqueued();
  on->Run([flag, limit, timeline = on->kernel_times] {
    Spin(flag, limit);
    timeline->KernelEnded();
  });
  return 0;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)

}  // namespace nccl_pulse::fake
