// NCCL's part of fake_gpu.cc: communicators whose ranks share memory.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "plugin/abi/profiler_v5.h"
#include "simulation/callbacks.h"
#include "tests/bench/fake/fake_stream.h"
#include "tests/gpu/fake/data.h"
#include "tests/gpu/fake/exchange.h"

// NOLINTBEGIN(readability-identifier-naming): names of the libraries that
// it stands in for; nobody sets variables.

namespace {

using fake_gpu::Misbehaves;
using fake_gpu::noise;
using fake_gpu::Occupy;
using fake_gpu::OwnSpeed;
using fake_gpu::receive_was_set;
using fake_gpu::Stream;
using nccl_pulse::simulation::Call;

struct Comm {
  int rank, nranks;
  nccl_pulse::fake::Exchange exchange;
  const nccl_pulse::abi::v5::Profiler* profiler = nullptr;
  void* context = nullptr;
  double tax = 0;
  double own_speed = OwnSpeed();
};

struct Group {
  int depth = 0;
  void* comm = nullptr;
  std::vector<Call> calls;
};
thread_local Group group;

// Puts an operation onto the stream, which takes as long as its first call.
int Operate(void* handle, const std::vector<Call>& calls) {
  Comm& comm = *static_cast<Comm*>(handle);
  Stream& stream = *static_cast<Stream*>(calls.front().stream);
  const double length_us = (4 + static_cast<double>(calls.front().count * sizeof(float)) / 5000) *
                           (1 + comm.tax) * comm.own_speed;
  const std::function<void()> data = [&comm, calls] {
    nccl_pulse::fake::RunData({&comm.exchange, comm.rank, comm.nranks}, calls);
    for (const Call& call : calls) {
      if (call.recv != nullptr && Misbehaves("wrong")) *static_cast<float*>(call.recv) += 1;
    }
  };
  if (stream.capture != nullptr) {
    stream.capture->length_us += length_us;
    stream.capture->data = data;
    return 0;
  }
  Occupy(stream, length_us * noise);
  if (receive_was_set) data();
  receive_was_set = false;
  return 0;
}

int AddToGroup(void* handle, const Call& call) {
  group.comm = handle;
  group.calls.push_back(call);
  return group.depth > 0 ? 0 : 5;
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
  close(file);
  return 0;
}
int ncclCommInitRank(void** handle, int nranks, FakeUniqueId id, int rank) {
  auto* comm = new Comm{rank, nranks, {id.path, rank, nranks}};
  LoadPlugin(*comm);
  *handle = comm;
  return 0;
}
int ncclCommDestroy(void* handle) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  if (comm->profiler != nullptr) comm->profiler->finalize(comm->context);
  return 0;
}

int ncclAllReduce(const void* send, void* receive, size_t count, int type, int, void* comm,
                  void* stream) {
  return Operate(comm, {{"AllReduce", send, receive, count, type, 0, false, false, stream}});
}
int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int, void* comm,
                      void* stream) {
  return Operate(comm, {{"ReduceScatter", send, receive, count, type, 0, false, false, stream}});
}
int ncclAllGather(const void* send, void* receive, size_t count, int type, void* comm,
                  void* stream) {
  return Operate(comm, {{"AllGather", send, receive, count, type, 0, false, false, stream}});
}
int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* comm,
                  void* stream) {
  return Operate(comm, {{"Broadcast", send, receive, count, type, root, false, false, stream}});
}
int ncclGroupStart() {
  ++group.depth;
  return 0;
}
int ncclSend(const void* send, size_t count, int type, int peer, void* comm, void* stream) {
  return AddToGroup(comm, {"Send", send, nullptr, count, type, peer, true, false, stream});
}
int ncclRecv(void* receive, size_t count, int type, int peer, void* comm, void* stream) {
  return AddToGroup(comm, {"Recv", nullptr, receive, count, type, peer, true, false, stream});
}
int ncclGroupEnd() {
  if (--group.depth > 0) return 0;
  return Operate(group.comm, std::exchange(group.calls, {}));
}

}  // extern "C"

// NOLINTEND(readability-identifier-naming)
