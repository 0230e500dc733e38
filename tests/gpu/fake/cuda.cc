#include "tests/gpu/fake/cuda.h"

#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/gpu/nccl_api.h"

using nccl_pulse::CudaError;
using nccl_pulse::CudaGraph;
using nccl_pulse::CudaGraphExec;
using nccl_pulse::CudaStream;
using nccl_pulse::fake::Graph;
using nccl_pulse::fake::Stream;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
extern "C" {

CudaError cudaSetDevice(int) { return 0; }

CudaError cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory != nullptr ? 0 : 2;
}

CudaError cudaFree(void* memory) {
  std::free(memory);
  return 0;
}

CudaError cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, CudaStream) {
  std::memcpy(to, from, bytes);
  return 0;
}

CudaError cudaMemsetAsync(void* memory, int value, size_t bytes, CudaStream) {
  std::memset(memory, value, bytes);
  return 0;
}

CudaError cudaStreamCreateWithFlags(CudaStream* stream, unsigned) {
  *stream = new Stream;
  return 0;
}

CudaError cudaStreamSynchronize(CudaStream) { return 0; }

CudaError cudaStreamDestroy(CudaStream stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}

CudaError cudaStreamBeginCapture(CudaStream stream, int) {
  static_cast<Stream*>(stream)->capture = new Graph;
  return 0;
}

CudaError cudaStreamEndCapture(CudaStream stream, CudaGraph* graph) {
  auto* state = static_cast<Stream*>(stream);
  *graph = state->capture;
  state->capture = nullptr;
  const bool invalidated = state->invalidated;
  state->invalidated = false;
  return invalidated ? 901 : 0;  // cudaErrorStreamCaptureInvalidated
}

CudaError cudaGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph, unsigned long long) {
  *exec = new Graph(*static_cast<Graph*>(graph));
  return 0;
}

// NCCL's part of a replay is a host function on a thread of CUDA's.
CudaError cudaGraphLaunch(CudaGraphExec exec, CudaStream) {
  std::thread([exec] {
    for (const auto& node : static_cast<Graph*>(exec)->nodes) node();
  }).join();
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

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
