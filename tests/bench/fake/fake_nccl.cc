// NCCL's part of fake_gpu.cc: communicators whose ranks share memory.
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "plugin/abi/profiler_v5.h"
#include "tests/bench/fake/fake_stream.h"

// NOLINTBEGIN(readability-identifier-naming): names of the libraries that
// it stands in for; nobody sets variables.

namespace {

using fake_gpu::kMaxRanks;
using fake_gpu::Misbehaves;
using fake_gpu::noise;
using fake_gpu::Occupy;
using fake_gpu::OwnSpeed;
using fake_gpu::receive_was_set;
using fake_gpu::Stream;

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

// NOLINTEND(readability-identifier-naming)
