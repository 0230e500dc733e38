// The CUDA driver and NCCL on host memory and simulated time, as far as collective_overhead uses
// them. One library: libcuda.so.1, libnccl.so.2, and through LD_PRELOAD the clock of the ranks.
//
// Time: a thread that has called cuInit lives in its own time. An enqueue takes 2 us of it; an
// operation takes 4 us and 1 us more per 5000 bytes on its stream, times the sample's noise (up to
// 0.5 % either way, drawn anew at every synchronise); a synchronise goes on when the stream is
// done. Ranks do not wait for each other in this time. The noise follows from the device and the
// number of synchronises alone: processes that were asked the same take exactly the same time, and
// one that was asked anything else before does not.
//
// Data: moved between ranks when the receive buffer was set since the last operation, as it is
// before results are checked. Timed operations move nothing, or the processes' real time would be
// spent on barriers.
//
//   FAKE_TAX=0.05     slows operations by that share when the plugin asks for KernelCh
//   FAKE_OWN=0.01     gives each process a speed of its own, by up to that share either way
//   FAKE_NCCL=wrong   one element is wrong;  hang, die: so the 200th synchronise of a rank ends;
//                     slow: a synchronise takes 3 ms of real time
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tests/bench/fake/fake_stream.h"

// NOLINTBEGIN(readability-identifier-naming): names of the libraries that
// it stands in for; nobody sets variables.

namespace {

using fake_gpu::DrawNoise;
using fake_gpu::Graph;
using fake_gpu::kMaxRanks;
using fake_gpu::Misbehaves;
using fake_gpu::noise;
using fake_gpu::now_us;
using fake_gpu::Occupy;
using fake_gpu::random_state;
using fake_gpu::receive_was_set;
using fake_gpu::simulated;
using fake_gpu::Stream;

using Pointer = unsigned long long;

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  if (clock != CLOCK_MONOTONIC || !simulated) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  }
  time->tv_sec = static_cast<time_t>(now_us / 1e6);
  time->tv_nsec = static_cast<long>((now_us - static_cast<double>(time->tv_sec) * 1e6) * 1e3);
  return 0;
}

int cuInit(unsigned) {
  simulated = true;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "error of the stand-in";
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = kMaxRanks;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  random_state = static_cast<uint32_t>(ordinal) * 2654435761u + 1;
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int size, int) {
  snprintf(name, static_cast<size_t>(size), "stand-in");
  return 0;
}
int cuDeviceGetPCIBusId(char* id, int size, int) {
  snprintf(id, static_cast<size_t>(size), "no bus");
  return 0;
}
int cuDeviceGetAttribute(int* value, int, int) {
  *value = 132;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &simulated;
  return 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuMemAlloc_v2(Pointer* memory, size_t bytes) {
  *memory = reinterpret_cast<Pointer>(malloc(bytes));
  return *memory != 0 ? 0 : 2;
}
int cuMemFree_v2(Pointer memory) {
  free(reinterpret_cast<void*>(memory));
  return 0;
}
int cuMemcpyHtoD_v2(Pointer to, const void* from, size_t bytes) {
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void* to, Pointer from, size_t bytes) {
  memcpy(to, reinterpret_cast<void*>(from), bytes);
  return 0;
}
int cuMemsetD32_v2(Pointer to, unsigned value, size_t count) {
  std::fill_n(reinterpret_cast<unsigned*>(to), count, value);
  receive_was_set = true;
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = new Stream;
  return 0;
}
int cuStreamSynchronize(void* stream) {
  thread_local int synchronised = 0;
  if (++synchronised == 200) {
    if (Misbehaves("die")) _exit(1);
    while (Misbehaves("hang")) pause();
  }
  if (Misbehaves("slow")) usleep(3000);
  now_us = std::max(now_us, static_cast<Stream*>(stream)->free_at_us);
  DrawNoise();
  return 0;
}
int cuStreamBeginCapture_v2(void* stream, int) {
  static_cast<Stream*>(stream)->capture = new Graph;
  return 0;
}
int cuStreamEndCapture(void* stream, void** graph) {
  *graph = static_cast<Stream*>(stream)->capture;
  static_cast<Stream*>(stream)->capture = nullptr;
  return 0;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  *executable = new Graph(*static_cast<Graph*>(graph));
  return 0;
}
int cuGraphLaunch(void* executable, void* stream) {
  const Graph& graph = *static_cast<Graph*>(executable);
  Occupy(*static_cast<Stream*>(stream), graph.length_us * noise);
  if (receive_was_set) graph.data();
  receive_was_set = false;
  return 0;
}
int cuGraphExecDestroy(void* executable) {
  delete static_cast<Graph*>(executable);
  return 0;
}
int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  // The driver's own translator is not here; at least it has to be text that names the kernel.
  *module = const_cast<void*>(image);
  return strstr(static_cast<const char*>(image), ".entry compute(") != nullptr ? 0 : 218;
}
int cuModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return 0;
}
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void* stream, void** parameters, void**) {
  const uint32_t rounds = *static_cast<uint32_t*>(parameters[1]);
  auto& on = *static_cast<Stream*>(stream);
  if (on.capture != nullptr) {
    on.capture->length_us += rounds * 0.01;
  } else {
    Occupy(on, rounds * 0.01 * noise);
  }
  return 0;
}

}  // extern "C"

// NOLINTEND(readability-identifier-naming)
