// Graphs of all kinds with collectives in them, for stamps.py: each is replayed a number of times
// that the program counts itself, and its results are checked.
//
//   nvcc -O2 -std=c++17 -rdc=true -arch=native -o stamps stamps.cu -lnccl -lcudadevrt
//
// Two processes, a GPU each. After a phase each prints "phase rank replays operations ok|error", of
// all phases so far; then the parent prints "look" and waits for a line on its standard input.
#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 2;
constexpr int kCount = 4096;

struct Shared {
  ncclUniqueId id;
  std::atomic<int> arrived;
  std::atomic<int> round;
};
Shared* g_shared;
std::string g_error;
uint64_t g_replays, g_operations;

void Barrier() {
  const int round = g_shared->round.load();
  if (g_shared->arrived.fetch_add(1) == kRanks) {  // the parent, too
    g_shared->arrived.store(0);
    g_shared->round.fetch_add(1);
    return;
  }
  while (g_shared->round.load() == round) usleep(200);
}

bool Ok(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  if (g_error.empty()) g_error = std::string(what) + ": " + cudaGetErrorString(error);
  cudaGetLastError();
  return false;
}
bool Ok(ncclResult_t error, const char* what) {
  if (error == ncclSuccess) return true;
  if (g_error.empty()) g_error = std::string(what) + ": " + ncclGetErrorString(error);
  return false;
}
#define CHECK(call) Ok(call, #call)

__global__ void Fill(float* data, float value) {
  for (int i = threadIdx.x; i < kCount; i += blockDim.x) data[i] = value;
}
__global__ void Again(cudaGraphConditionalHandle handle, int* rounds) {
  const int left = --*rounds;
  cudaGraphSetConditional(handle, left > 0 ? 1 : 0);
}
__global__ void LaunchGraph(cudaGraphExec_t exec) {
  cudaGraphLaunch(exec, cudaStreamGraphTailLaunch);
}

// As NCCL captures by default, so that graphs and eager calls may be mixed, no conditional body and no
// graph for device launch can be instantiated, whatever the plugin (seen with 2.28.9).
bool IsWithoutMixing() {
  const char* value = getenv("NCCL_GRAPH_MIXING_SUPPORT");
  return value != nullptr && strcmp(value, "0") == 0;
}

struct Job {
  ncclComm_t comm, beside;
  cudaStream_t stream, other;
  float *data, *data_beside;

  void AllReduce() { CHECK(ncclAllReduce(data, data, kCount, ncclFloat, ncclAvg, comm, stream)); }
  cudaGraph_t Capture(int calls) {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < calls; ++i) AllReduce();
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
  }
  static cudaGraphExec_t Instantiate(cudaGraph_t graph, unsigned flags = 0) {
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph, flags));
    return exec;
  }
  void Replay(cudaGraphExec_t exec, int times, int calls, int passes = 1) {
    for (int i = 0; i < times && g_error.empty(); ++i) {
      CHECK(cudaGraphLaunch(exec, stream));
      if (i % 100 == 99) CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    g_replays += uint64_t(times) * passes;
    g_operations += uint64_t(times) * passes * calls;
  }
  void CheckData() {
    std::vector<float> host(kCount);
    CHECK(cudaMemcpyAsync(host.data(), data, kCount * sizeof(float), cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (float value : host) {
      if (value != 1.5f && g_error.empty()) g_error = "wrong result " + std::to_string(value);
    }
  }
};

void Plain(Job& job, int replays) {
  cudaGraph_t graph = job.Capture(65);
  cudaGraphExec_t exec = Job::Instantiate(graph);
  CHECK(cudaGraphDestroy(graph));
  job.Replay(exec, replays, 65);
  CHECK(cudaGraphExecDestroy(exec));
}

void Several(Job& job) {
  cudaGraph_t a = job.Capture(65), b = job.Capture(21), few = job.Capture(5);
  cudaGraphExec_t ax = Job::Instantiate(a), bx = Job::Instantiate(b), fx = Job::Instantiate(few);
  for (int i = 0; i < 300; ++i) {
    job.Replay(ax, 1, 65);
    job.Replay(bx, 2, 21);
    CHECK(cudaGraphLaunch(fx, job.stream));  // no stamp: not counted
  }
  CHECK(cudaStreamSynchronize(job.stream));
}

// In global mode, beside work that runs.
void ManyCaptures(Job& job, int captures) {
  cudaGraphExec_t exec = nullptr;
  for (int i = 0; i < captures && g_error.empty(); ++i) {
    for (int k = 0; k < 20; ++k) {
      CHECK(ncclAllReduce(job.data_beside, job.data_beside, kCount, ncclFloat, ncclAvg, job.beside,
                          job.other));
    }
    cudaGraph_t graph = job.Capture(22);
    if (!g_error.empty()) break;
    if (exec == nullptr) {
      exec = Job::Instantiate(graph);
    } else {
      cudaGraphExecUpdateResultInfo info{};
      CHECK(cudaGraphExecUpdate(exec, graph, &info));
    }
    job.Replay(exec, 1, 22);
    CHECK(cudaGraphDestroy(graph));
  }
  CHECK(cudaStreamSynchronize(job.other));
}

void ChildAndClone(Job& job) {
  cudaGraph_t graph = job.Capture(30), parent = nullptr, clone = nullptr;
  CHECK(cudaGraphCreate(&parent, 0));
  cudaGraphNode_t first = nullptr, second = nullptr;
  CHECK(cudaGraphAddChildGraphNode(&first, parent, nullptr, 0, graph));
  CHECK(cudaGraphAddChildGraphNode(&second, parent, &first, 1, graph));
  job.Replay(Job::Instantiate(parent), 10, 30, 2);
  CHECK(cudaGraphClone(&clone, graph));
  CHECK(cudaGraphDestroy(graph));
  job.Replay(Job::Instantiate(clone), 7, 30);
}

void While(Job& job) {
  constexpr int kRounds = 4;
  cudaGraph_t graph = nullptr;
  int* rounds = nullptr;
  CHECK(cudaMalloc(&rounds, sizeof(int)));
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle{};
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
#else
  CHECK(cudaGraphAddNode(&node, graph, nullptr, 0, &params));
#endif
  if (!g_error.empty()) return;
  cudaGraph_t body = params.conditional.phGraph_out[0];
  CHECK(cudaStreamBeginCaptureToGraph(job.stream, body, nullptr, nullptr, 0,
                                      cudaStreamCaptureModeRelaxed));
  for (int i = 0; i < 24; ++i) job.AllReduce();
  Again<<<1, 1, 0, job.stream>>>(handle, rounds);
  CHECK(cudaStreamEndCapture(job.stream, nullptr));
  cudaGraphExec_t exec = Job::Instantiate(graph);
  for (int i = 0; i < 5 && g_error.empty(); ++i) {
    const int left = kRounds;
    CHECK(cudaMemcpy(rounds, &left, sizeof(int), cudaMemcpyDefault));
    job.Replay(exec, 1, 24, kRounds);
  }
}

void DeviceLaunch(Job& job) {
  cudaGraph_t graph = job.Capture(24);
  cudaGraphExec_t exec = Job::Instantiate(graph, cudaGraphInstantiateFlagDeviceLaunch);
  if (!g_error.empty()) return;
  CHECK(cudaGraphUpload(exec, job.stream));
  job.Replay(exec, 3, 24);
  cudaGraph_t launcher = nullptr;
  CHECK(cudaStreamBeginCapture(job.stream, cudaStreamCaptureModeGlobal));
  LaunchGraph<<<1, 1, 0, job.stream>>>(exec);
  CHECK(cudaStreamEndCapture(job.stream, &launcher));
  cudaGraphExec_t launches = Job::Instantiate(launcher, cudaGraphInstantiateFlagDeviceLaunch);
  if (!g_error.empty()) return;
  for (int i = 0; i < 5; ++i) job.Replay(launches, 1, 24);
}

int Rank(int rank, int replays, int captures) {
  CHECK(cudaSetDevice(rank));
  if (rank == 0) CHECK(ncclGetUniqueId(&g_shared->id));
  Barrier();
  Job job{};
  const auto begin = std::chrono::steady_clock::now();
  CHECK(ncclCommInitRank(&job.comm, kRanks, g_shared->id, rank));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(ncclCommSplit(job.comm, 0, rank, &job.beside, nullptr));
  CHECK(cudaStreamCreateWithFlags(&job.stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&job.other, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&job.data, kCount * sizeof(float)));
  CHECK(cudaMalloc(&job.data_beside, kCount * sizeof(float)));
  Fill<<<1, 256, 0, job.other>>>(job.data_beside, 1);
  Fill<<<1, 256, 0, job.stream>>>(job.data, 1 + rank);
  job.AllReduce();
  CHECK(cudaStreamSynchronize(job.stream));
  fprintf(stderr, "rank %d: communicator made in %.3f s\n", rank, took.count());
  const auto phase = [&](const char* name, auto run) {
    const auto start = std::chrono::steady_clock::now();
    if (g_error.empty()) run();
    if (g_error.empty()) job.CheckData();
    usleep(400000);  // the plugin's thread looks every 100 ms
    printf("%s %d %llu %llu %s\n", name, rank, (unsigned long long)g_replays,
           (unsigned long long)g_operations, g_error.empty() ? "ok" : g_error.c_str());
    fflush(stdout);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (rank == 0) fprintf(stderr, "%s: %.2f s\n", name, seconds.count());
    g_error.clear();
    Barrier();
    Barrier();  // looked at
  };
  phase("plain", [&] { Plain(job, replays); });
  phase("several", [&] { Several(job); });
  phase("captures", [&] { ManyCaptures(job, captures); });
  phase("child", [&] { ChildAndClone(job); });
  if (IsWithoutMixing()) {
    phase("while", [&] { While(job); });
    phase("device", [&] { DeviceLaunch(job); });
  }
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const int replays = argc > 1 ? atoi(argv[1]) : 1000;
  const int captures = argc > 2 ? atoi(argv[2]) : 100;
  g_shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (fork() == 0) return Rank(rank, replays, captures);
  }
  Barrier();
  for (int look = 0; look < (IsWithoutMixing() ? 6 : 4); ++look) {
    Barrier();
    printf("look\n");
    fflush(stdout);
    char line[16];
    if (fgets(line, sizeof(line), stdin) == nullptr) return 1;
    Barrier();
  }
  return 0;
}
