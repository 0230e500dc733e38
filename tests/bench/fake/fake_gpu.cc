// The CUDA driver and NCCL on host memory and simulated time, as far as collective_overhead uses
// them. One file: libcuda.so.1, libnccl.so.2, and through LD_PRELOAD the clock of the ranks.
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
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "plugin/abi/profiler_v5.h"

// NOLINTBEGIN(readability-identifier-naming, concurrency-mt-unsafe): names of the libraries that
// it stands in for; nobody sets variables.

namespace {

using Pointer = unsigned long long;

// ---- time ---------------------------------------------------------------------------------------

thread_local bool simulated = false;
thread_local double now_us = 0;
thread_local double noise = 1;
thread_local uint32_t random_state = 0;

double OwnSpeed() {
  const char* share = std::getenv("FAKE_OWN");
  if (share == nullptr) return 1;
  const uint32_t mixed = static_cast<uint32_t>(getpid()) * 2654435761u;
  return 1 + atof(share) * (static_cast<double>(mixed >> 8) / (1 << 23) - 1);
}

void DrawNoise() {
  random_state = random_state * 1664525u + 1013904223u;
  noise = 1 + (static_cast<double>(random_state >> 8) / (1 << 24) - 0.5) * 0.01;
}

// ---- streams and graphs -------------------------------------------------------------------------

struct Graph {
  double length_us = 0;
  std::function<void()> data;  // of the last operation
};

struct Stream {
  double free_at_us = 0;
  Graph* capture = nullptr;
};

void Occupy(Stream& stream, double length_us) {
  constexpr double kEnqueueUs = 2;
  now_us += kEnqueueUs;
  stream.free_at_us = std::max(stream.free_at_us, now_us) + length_us;
}

bool Misbehaves(const char* how) {
  const char* asked = std::getenv("FAKE_NCCL");
  return asked != nullptr && strcmp(asked, how) == 0;
}

thread_local bool receive_was_set = false;

// ---- communicators ------------------------------------------------------------------------------

constexpr int kMaxRanks = 8;
constexpr size_t kSlotCount = 65536;  // elements that a rank can have for one peer

// Mapped by all ranks of a communicator.
struct Shared {
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> round;
  float slots[kMaxRanks][kMaxRanks][kSlotCount];  // of rank, for peer
};

struct Comm {
  int rank, nranks;
  Shared* shared;
  const nccl_pulse::abi::v5::Profiler* profiler = nullptr;
  void* context = nullptr;
  double tax = 0;
  double own_speed = OwnSpeed();

  void Barrier() const {
    const uint32_t round = shared->round.load();
    if (shared->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(nranks)) {
      shared->arrived.store(0);
      shared->round.store(round + 1);
      return;
    }
    while (shared->round.load() == round) sched_yield();
  }
};

struct PointToPoint {
  const float* send;
  float* receive;
  size_t count;
  int peer;
};
thread_local int group_depth = 0;
thread_local std::vector<PointToPoint> group;

// Puts an operation of that many elements onto the stream; `data` moves them.
void Operate(Comm& comm, Stream& stream, size_t count, const std::function<void()>& data) {
  const double length_us =
      (4 + static_cast<double>(count * sizeof(float)) / 5000) * (1 + comm.tax) * comm.own_speed;
  if (stream.capture != nullptr) {
    stream.capture->length_us += length_us;
    stream.capture->data = data;
    return;
  }
  Occupy(stream, length_us * noise);
  if (receive_was_set) data();
  receive_was_set = false;
}

void Put(const Comm& comm, int peer, const float* from, size_t count) {
  if (count > kSlotCount) abort();
  memcpy(comm.shared->slots[comm.rank][peer], from, count * sizeof(float));
}

// Every rank gives one part for all, or one for each; and takes what `take` makes of them.
void Exchange(Comm& comm, const void* send, size_t count, bool per_peer, void* receive,
              const std::function<void(float*)>& take) {
  for (int peer = 0; peer < comm.nranks; ++peer) {
    const size_t offset = per_peer ? count * static_cast<size_t>(peer) : 0;
    Put(comm, peer, static_cast<const float*>(send) + offset, count);
  }
  comm.Barrier();
  auto* result = static_cast<float*>(receive);
  take(result);
  if (Misbehaves("wrong")) result[0] += 1;
  comm.Barrier();
}

void Sum(const Comm& comm, size_t count, float* result) {
  for (size_t i = 0; i < count; ++i) {
    result[i] = 0;
    for (int from = 0; from < comm.nranks; ++from) {
      result[i] += comm.shared->slots[from][comm.rank][i];
    }
  }
}

void Log(int, unsigned long, const char*, int, const char*, ...) {}

void LoadPlugin(Comm& comm) {
  const char* name = std::getenv("NCCL_PROFILER_PLUGIN");
  if (name == nullptr || strcmp(name, "none") == 0) return;
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  comm.profiler =
      static_cast<const nccl_pulse::abi::v5::Profiler*>(dlsym(library, "ncclProfiler_v5"));
  if (comm.profiler == nullptr) {
    dlclose(library);
    return;
  }
  int mask = 0;
  comm.profiler->init(&comm.context, 1, &mask, "fake", 1, comm.nranks, comm.rank, Log);
  const char* tax = std::getenv("FAKE_TAX");
  if (tax != nullptr && (mask & nccl_pulse::abi::kEventKernelCh) != 0) comm.tax = atof(tax);
}

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

// ---- driver -------------------------------------------------------------------------------------

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

// ---- NCCL ---------------------------------------------------------------------------------------

struct FakeUniqueId {
  char path[128];
};

int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
const char* ncclGetErrorString(int) { return "error of the stand-in"; }
const char* ncclGetLastError(void*) { return ""; }
int ncclGetUniqueId(FakeUniqueId* id) {
  // Not in the test's own folder: its path may well be longer than NCCL's 128 bytes for an id.
  snprintf(id->path, sizeof(id->path), "/tmp/fake_gpu_communicator_XXXXXX");
  const int file = mkstemp(id->path);
  if (file < 0) return 2;
  const int grown = ftruncate(file, sizeof(Shared));
  close(file);
  return grown == 0 ? 0 : 2;
}
int ncclCommInitRank(void** handle, int nranks, FakeUniqueId id, int rank) {
  const int file = open(id.path, O_RDWR | O_CLOEXEC);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED || nranks > kMaxRanks) return 2;
  auto* comm = new Comm{rank, nranks, static_cast<Shared*>(memory)};
  LoadPlugin(*comm);
  comm->Barrier();
  if (rank == 0) unlink(id.path);
  *handle = comm;
  return 0;
}
int ncclCommDestroy(void* handle) {
  auto* comm = static_cast<Comm*>(handle);
  if (comm->profiler != nullptr) comm->profiler->finalize(comm->context);
  munmap(comm->shared, sizeof(Shared));
  delete comm;
  return 0;
}

int ncclAllReduce(const void* send, void* receive, size_t count, int, int, void* handle,
                  void* stream) {
  auto& comm = *static_cast<Comm*>(handle);
  Operate(comm, *static_cast<Stream*>(stream), count, [=, &comm] {
    Exchange(comm, send, count, false, receive, [&](float* result) { Sum(comm, count, result); });
  });
  return 0;
}
int ncclReduceScatter(const void* send, void* receive, size_t count, int, int, void* handle,
                      void* stream) {
  auto& comm = *static_cast<Comm*>(handle);
  Operate(comm, *static_cast<Stream*>(stream), count, [=, &comm] {
    Exchange(comm, send, count, true, receive, [&](float* result) { Sum(comm, count, result); });
  });
  return 0;
}
int ncclAllGather(const void* send, void* receive, size_t count, int, void* handle, void* stream) {
  auto& comm = *static_cast<Comm*>(handle);
  Operate(comm, *static_cast<Stream*>(stream), count, [=, &comm] {
    Exchange(comm, send, count, false, receive, [&](float* result) {
      for (int from = 0; from < comm.nranks; ++from) {
        memcpy(result + count * static_cast<size_t>(from), comm.shared->slots[from][comm.rank],
               count * sizeof(float));
      }
    });
  });
  return 0;
}
int ncclBroadcast(const void* send, void* receive, size_t count, int, int root, void* handle,
                  void* stream) {
  auto& comm = *static_cast<Comm*>(handle);
  Operate(comm, *static_cast<Stream*>(stream), count, [=, &comm] {
    Exchange(comm, send, count, false, receive, [&](float* result) {
      memcpy(result, comm.shared->slots[root][comm.rank], count * sizeof(float));
    });
  });
  return 0;
}
int ncclGroupStart() {
  ++group_depth;
  return 0;
}
int ncclSend(const void* send, size_t count, int, int peer, void*, void*) {
  group.push_back({static_cast<const float*>(send), nullptr, count, peer});
  return group_depth > 0 ? 0 : 5;
}
thread_local Comm* group_comm = nullptr;
thread_local Stream* group_stream = nullptr;
int ncclRecv(void* receive, size_t count, int, int peer, void* handle, void* stream) {
  group.push_back({nullptr, static_cast<float*>(receive), count, peer});
  group_comm = static_cast<Comm*>(handle);
  group_stream = static_cast<Stream*>(stream);
  return group_depth > 0 ? 0 : 5;
}
int ncclGroupEnd() {
  if (--group_depth > 0) return 0;
  const std::vector<PointToPoint> calls = std::move(group);
  group.clear();
  Comm& comm = *group_comm;
  Operate(comm, *group_stream, calls.front().count, [calls, &comm] {
    for (const PointToPoint& call : calls) {
      if (call.send != nullptr) Put(comm, call.peer, call.send, call.count);
    }
    comm.Barrier();
    for (const PointToPoint& call : calls) {
      if (call.receive == nullptr) continue;
      memcpy(call.receive, comm.shared->slots[call.peer][comm.rank], call.count * sizeof(float));
      if (Misbehaves("wrong")) call.receive[0] += 1;
    }
    comm.Barrier();
  });
  return 0;
}

}  // extern "C"

// NOLINTEND(readability-identifier-naming, concurrency-mt-unsafe)
