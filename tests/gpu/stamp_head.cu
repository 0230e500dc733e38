// What a stamp costs by where it stands in a graph, with NCCL and without the plugin.
//
//   nvcc -O2 -std=c++17 -arch=native -o stamp_head stamp_head.cu -lnccl
//   ./stamp_head [rounds]
//
// One process, two GPUs. Graphs of AllReduces of 64 B, with nothing else (plain) or each behind a
// kernel of about 10 us (decode). The stamp is made, as by the plugin, when the 21st AllReduce is
// about to be captured:
//
//   none     no stamp
//   head     a new root of the graph, in front of the root that there is
//   call     in front of the first AllReduce: the same dependencies, and an edge to it
//   within   in front of the 21st AllReduce, launched into the capture
//
// Prints a line for each graph and variant: the median of the rounds, in us a replay, and what it is
// above "none". Rounds visit the variants in turn. Then 100 captures, each taken into one executable
// by cudaGraphExecUpdate, with a stamp at the head of one and of two roots: "updates ok".
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kGpus = 2;
constexpr int kReplays = 300;
constexpr int kVariants = 4;
const char* const kNames[kVariants] = {"none", "head", "call", "within"};

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}
void Check(ncclResult_t error, const char* what) {
  if (error == ncclSuccess) return;
  fprintf(stderr, "%s: %s\n", what, ncclGetErrorString(error));
  exit(1);
}
#define CHECK(call) Check(call, #call)

__device__ unsigned long long g_passages;
__global__ void Stamp(unsigned long long* place) {
  const unsigned long long count = atomicAdd(&g_passages, 1) + 1;
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  reinterpret_cast<ulonglong2*>(place)[0] = make_ulonglong2(count, now);
}
__global__ void Work(int ns) {
  for (int i = 0; i < ns / 1000; ++i) __nanosleep(1000);
}

struct Gpu {
  ncclComm_t comm;
  cudaStream_t stream, side;
  cudaEvent_t fork, join;
  float* data;
  unsigned long long* place;
};
Gpu g_gpus[kGpus];

// CUDA 13 has one form of these, with data on the edges; 12 has both.
cudaError_t CaptureInfo(cudaStream_t stream, cudaGraph_t* graph, const cudaGraphNode_t** from,
                        size_t* count) {
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, &status, &id, graph, from, nullptr, count);
#else
  return cudaStreamGetCaptureInfo_v2(stream, &status, &id, graph, from, count);
#endif
}
cudaError_t AddEdges(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                     size_t count) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
#else
  return cudaGraphAddDependencies(graph, from, to, count);
#endif
}

void AddStamp(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after,
              const std::vector<cudaGraphNode_t>& before, unsigned long long* place) {
  cudaKernelNodeParams params{};
  void* arguments[] = {&place};
  params.func = reinterpret_cast<void*>(Stamp);
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphNode_t stamp = nullptr;
  CHECK(cudaGraphAddKernelNode(&stamp, graph, after.data(), after.size(), &params));
  const std::vector<cudaGraphNode_t> from(before.size(), stamp);
  CHECK(AddEdges(graph, from.data(), before.data(), before.size()));
}

std::vector<cudaGraphNode_t> Roots(cudaGraph_t graph) {
  std::vector<cudaGraphNode_t> roots(32);
  size_t count = roots.size();
  CHECK(cudaGraphGetRootNodes(graph, roots.data(), &count));
  roots.resize(count);
  return roots;
}

// `has_two_roots`: a second stream works beside the first AllReduces.
void Capture(int variant, int calls, int work_ns, bool has_two_roots, cudaGraph_t* graphs) {
  std::vector<cudaGraphNode_t> before_first[kGpus], first[kGpus];
  for (int i = 0; i < kGpus; ++i) {
    CHECK(cudaSetDevice(i));
    Gpu& gpu = g_gpus[i];
    CHECK(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeRelaxed));
    if (!has_two_roots) continue;
    CHECK(cudaEventRecord(gpu.fork, gpu.stream));
    CHECK(cudaStreamWaitEvent(gpu.side, gpu.fork, 0));
    Work<<<1, 1, 0, gpu.side>>>(1000);
  }
  for (int call = 0; call < calls; ++call) {
    for (int i = 0; i < kGpus; ++i) {
      CHECK(cudaSetDevice(i));
      Gpu& gpu = g_gpus[i];
      if (work_ns != 0) Work<<<64, 128, 0, gpu.stream>>>(work_ns);
      cudaGraph_t graph = nullptr;
      const cudaGraphNode_t* nodes = nullptr;
      size_t count = 0;
      CHECK(CaptureInfo(gpu.stream, &graph, &nodes, &count));
      if (call == 0) before_first[i].assign(nodes, nodes + count);
      if (call != 20) continue;
      if (variant == 1) AddStamp(graph, {}, Roots(graph), gpu.place);
      if (variant == 2) AddStamp(graph, before_first[i], first[i], gpu.place);
      if (variant == 3) Stamp<<<1, 1, 0, gpu.stream>>>(gpu.place);
    }
    CHECK(ncclGroupStart());
    for (Gpu& gpu : g_gpus) {
      CHECK(ncclAllReduce(gpu.data, gpu.data, 16, ncclFloat, ncclAvg, gpu.comm, gpu.stream));
    }
    CHECK(ncclGroupEnd());
    if (call != 0) continue;
    for (int i = 0; i < kGpus; ++i) {
      cudaGraph_t graph = nullptr;
      const cudaGraphNode_t* nodes = nullptr;
      size_t count = 0;
      CHECK(CaptureInfo(g_gpus[i].stream, &graph, &nodes, &count));
      first[i].assign(nodes, nodes + count);
    }
  }
  for (int i = 0; i < kGpus; ++i) {
    CHECK(cudaSetDevice(i));
    Gpu& gpu = g_gpus[i];
    if (has_two_roots) {
      CHECK(cudaEventRecord(gpu.join, gpu.side));
      CHECK(cudaStreamWaitEvent(gpu.stream, gpu.join, 0));
    }
    CHECK(cudaStreamEndCapture(gpu.stream, &graphs[i]));
  }
}

void Launch(cudaGraphExec_t* execs) {
  for (int i = 0; i < kGpus; ++i) CHECK(cudaGraphLaunch(execs[i], g_gpus[i].stream));
}
void Synchronize() {
  for (Gpu& gpu : g_gpus) CHECK(cudaStreamSynchronize(gpu.stream));
}

double MeasureUs(cudaGraphExec_t* execs) {
  for (int i = 0; i < 20; ++i) Launch(execs);
  Synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kReplays; ++i) Launch(execs);
  Synchronize();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kReplays;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Compare(const char* name, int calls, int work_ns, int rounds) {
  cudaGraphExec_t execs[kVariants][kGpus];
  for (int variant = 0; variant < kVariants; ++variant) {
    cudaGraph_t graphs[kGpus];
    Capture(variant, calls, work_ns, false, graphs);
    for (int i = 0; i < kGpus; ++i) {
      CHECK(cudaGraphInstantiate(&execs[variant][i], graphs[i], 0));
    }
  }
  std::vector<double> times[kVariants], above[kVariants];
  for (int round = 0; round < rounds; ++round) {
    double us[kVariants];
    for (int k = 0; k < kVariants; ++k) {
      const int variant = (k + round) % kVariants;
      us[variant] = MeasureUs(execs[variant]);
    }
    for (int variant = 0; variant < kVariants; ++variant) {
      times[variant].push_back(us[variant]);
      above[variant].push_back(us[variant] - us[0]);
    }
  }
  for (int variant = 0; variant < kVariants; ++variant) {
    std::vector<double> sorted = above[variant];
    std::sort(sorted.begin(), sorted.end());
    printf("%-6s %3d calls  %-6s  %8.2f us  above none %+6.2f [%+6.2f, %+6.2f] us, %+5.2f %%\n",
           name, calls, kNames[variant], Median(times[variant]), Median(above[variant]),
           sorted[sorted.size() / 10], sorted[sorted.size() - 1 - sorted.size() / 10],
           100 * Median(above[variant]) / Median(times[0]));
    fflush(stdout);
  }
}

void Updates(bool has_two_roots) {
  cudaGraphExec_t execs[kGpus] = {};
  int accepted = 0;
  for (int capture = 0; capture < 100; ++capture) {
    cudaGraph_t graphs[kGpus];
    Capture(1, 25, 0, has_two_roots, graphs);
    for (int i = 0; i < kGpus; ++i) {
      if (capture == 0) {
        CHECK(cudaGraphInstantiate(&execs[i], graphs[i], 0));
        continue;
      }
      cudaGraphExecUpdateResultInfo info{};
      if (cudaGraphExecUpdate(execs[i], graphs[i], &info) == cudaSuccess) ++accepted;
      cudaGetLastError();
      CHECK(cudaGraphDestroy(graphs[i]));
    }
    Launch(execs);
    Synchronize();
  }
  printf("updates with %d roots: %d of %d accepted\n", has_two_roots ? 2 : 1, accepted,
         99 * kGpus);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 21;
  ncclComm_t comms[kGpus];
  CHECK(ncclCommInitAll(comms, kGpus, nullptr));
  for (int i = 0; i < kGpus; ++i) {
    CHECK(cudaSetDevice(i));
    Gpu& gpu = g_gpus[i];
    gpu.comm = comms[i];
    CHECK(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&gpu.side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&gpu.fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&gpu.join, cudaEventDisableTiming));
    CHECK(cudaMalloc(&gpu.data, 4096));
    CHECK(cudaMemset(gpu.data, 0, 4096));
    CHECK(cudaHostAlloc(&gpu.place, 64, cudaHostAllocMapped));
    Stamp<<<1, 1, 0, gpu.stream>>>(gpu.place);
    Work<<<1, 1, 0, gpu.stream>>>(0);
  }
  CHECK(ncclGroupStart());
  for (Gpu& gpu : g_gpus) {
    CHECK(ncclAllReduce(gpu.data, gpu.data, 16, ncclFloat, ncclAvg, gpu.comm, gpu.stream));
  }
  CHECK(ncclGroupEnd());
  Synchronize();
  Compare("plain", 25, 0, rounds);
  Compare("plain", 61, 0, rounds);
  Compare("decode", 25, 10000, rounds);
  Compare("decode", 64, 10000, rounds);
  Updates(false);
  Updates(true);
  return 0;
}
