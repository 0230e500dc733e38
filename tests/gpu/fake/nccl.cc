// NCCL's functions on host memory. Data goes through a file; the plugin is called by Profiler.
//
//   NCCL_HOSTID                                 ranks with different ones are different nodes
//   NCCL_P2P_DISABLE=1 with NCCL_SHM_DISABLE=1  everything goes through a network
//   FAKE_NCCL_VERSION                           which release it is, 22809 by default
//   FAKE_NCCL_FAULT=skip|crash|hang             misbehaves, to see whether it is noticed
//   FAKE_NCCL_ASYNC=1                           kernels run beside the host: cuda.h
//
// When ranks call different collectives, or sizes, on a communicator, the call never ends. NCCL
// does not check that: there such a call hangs when the ranks wait for different steps or
// protocols, and may else end with garbage. A small Broadcast is handed round a ring, as NCCL does:
// a rank leaves it when it has handed it on.

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plugin/abi/common.h"
#include "simulation/callbacks.h"
#include "tests/gpu/fake/cuda.h"
#include "tests/gpu/fake/data.h"
#include "tests/gpu/fake/exchange.h"
#include "tests/gpu/nccl_api.h"

namespace nccl_pulse::fake {
namespace {

using simulation::Call;
using simulation::Profiler;

const char* Variable(const char* name) { return std::getenv(name); }

// FAKE_NCCL_VERSION, spelled as ncclGetVersion does: 22809 is 2.28.9.
int Version() {
  static const int kVersion = [] {
    const char* value = Variable("FAKE_NCCL_VERSION");
    return value != nullptr ? std::atoi(value) : 22809;
  }();
  return kVersion;
}

// The newest profiler API that this release knows.
int ProfilerApi() {
  return Version() >= 23102 ? 7 : Version() >= 22902 ? 6 : Version() >= 22803 ? 5 : 4;
}

// Whether a Broadcast makes events below its API call. From 2.29.2 on it does not: collTaskAppend
// queues it as a ncclTaskBcast, which has no event mask, and ncclPrepareTasks makes an ordinary
// task of it without one (enqueue.cc, read in 2.30.7 and 2.31.2). NCCL_ALLGATHERV_ENABLE=0 prevents
// that.
bool ReportsBroadcast() {
  const char* enable = Variable("NCCL_ALLGATHERV_ENABLE");
  return Version() < 22902 || (enable != nullptr && std::strcmp(enable, "0") == 0);
}

// Whether FAKE_NCCL_FAULT asks for this fault.
bool Fault(const char* name) {
  static const char* const kFault = Variable("FAKE_NCCL_FAULT");
  return kFault != nullptr && std::strcmp(kFault, name) == 0;
}

// NCCL's logger: to NCCL_DEBUG_FILE, or standard error.
__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long /*flags*/,
                                               const char* /*file*/, int /*line*/,
                                               const char* format, ...) {
  static FILE* const kFile = [] {
    const char* path = Variable("NCCL_DEBUG_FILE");
    FILE* opened = path != nullptr ? std::fopen(path, "a") : nullptr;
    return opened != nullptr ? opened : stderr;
  }();
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::fprintf(kFile, "host:%d:%d [0] NCCL %s %s\n", getpid(), gettid(),
               level == abi::kLogWarn ? "WARN" : "INFO", text);
  std::fflush(kFile);
}

struct Comm {
  std::string path;  // of the exchange; makes the id
  std::string name;
  int rank, nranks;
  bool blocking = true;
  int splits = 0;
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<Profiler> profiler;
  std::atomic<NcclResult> result{kNcclSuccess};
  std::thread worker;  // of a non-blocking communicator

  void Run(std::function<void()> work) {
    if (blocking) return work();
    if (worker.joinable()) worker.join();
    result.store(kNcclInProgress);
    worker = std::thread([this, work = std::move(work)] {
      work();
      result.store(kNcclSuccess);
    });
  }
};

bool IsSet(const char* variable) {
  const char* value = Variable(variable);
  return value != nullptr && std::strcmp(value, "1") == 0;
}

void Connect(Comm& comm, const char* name) {
  comm.exchange = std::make_unique<Exchange>(comm.path, comm.rank, comm.nranks);
  const char* host = Variable("NCCL_HOSTID");
  const uint64_t host_id = std::hash<std::string>()(host != nullptr ? host : "");
  uint64_t all[kMaxRanks][2];
  comm.exchange->Publish({host_id, 0}, all);
  int nodes = 0;
  for (int i = 0; i < comm.nranks; ++i) {
    bool is_new = true;
    for (int j = 0; j < i; ++j) is_new = is_new && all[j][0] != all[i][0];
    if (is_new) ++nodes;
  }
  // NCCL 2.28.9 finds no way between such ranks, and takes each for a node of its own.
  if (IsSet("NCCL_P2P_DISABLE") && IsSet("NCCL_SHM_DISABLE")) nodes = comm.nranks;
  const bool has_traffic = nodes > 1;
  const Profiler::Identity identity{
      std::hash<std::string>()(comm.path), name, nodes, comm.nranks, comm.rank,
      has_traffic && comm.nranks > 1};
  comm.profiler = std::make_unique<Profiler>(
      identity, simulation::Release{ProfilerApi(), ReportsBroadcast(),
                                    Variable("NCCL_PROFILER_PLUGIN"), Log});
}

[[noreturn]] void Hang() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// ---- groups -------------------------------------------------------------------------------------

struct Group {
  int depth = 0;
  Comm* comm = nullptr;  // one for a group is all that the programs need
  void* handle = nullptr;
  std::vector<Call> calls;
};
thread_local Group t_group;

// Below the call; with the faults that the driver of a test must find.
void Enqueue(Comm& comm, const std::vector<Call>& calls) {
  if (comm.profiler->is_loaded()) {
    if (Fault("crash") && comm.rank == 1) std::raise(SIGSEGV);
    if (Fault("hang")) Hang();
  }
  comm.profiler->Enqueue(calls);
}

void LaunchGroup(Comm& comm, void* handle, std::vector<Call> calls) {
  auto* stream = static_cast<Stream*>(calls.front().stream);
  comm.profiler->Launch(handle, stream, calls, [stream] {
    if (stream->capture == nullptr) stream->kernel_times->KernelEnqueued();
  });
  if (calls.front().captured) {
    if (!comm.profiler->sees_replays()) Enqueue(comm, calls);
    stream->capture->nodes.emplace_back([&comm, calls] {
      if (comm.profiler->sees_replays()) Enqueue(comm, calls);
      RunData({comm.exchange.get(), comm.rank, comm.nranks}, calls);
    });
    return;
  }
  Enqueue(comm, calls);
  stream->Run([&comm, calls = std::move(calls), timeline = stream->kernel_times] {
    RunData({comm.exchange.get(), comm.rank, comm.nranks}, calls);
    timeline->KernelEnded();
  });
}

NcclResult EndGroup() {
  if (--t_group.depth > 0 || t_group.comm == nullptr) return kNcclSuccess;
  Group group = std::move(t_group);
  t_group = Group();
  Comm& comm = *group.comm;
  comm.profiler->StartEnd(group.handle);
  comm.Run([&comm, handle = group.handle, calls = std::move(group.calls)] {
    LaunchGroup(comm, handle, calls);
  });
  comm.profiler->StopGroup(group.handle);
  return comm.blocking ? kNcclSuccess : kNcclInProgress;
}

// One call of the program, which NCCL makes `calls` of.
NcclResult Add(NcclComm handle, std::vector<Call> calls) {
  auto& comm = *static_cast<Comm*>(handle);
  ++t_group.depth;
  for (Call& call : calls) {
    call.captured = static_cast<Stream*>(call.stream)->capture != nullptr;
    if (t_group.comm == nullptr) {
      t_group.comm = &comm;
      t_group.handle = comm.profiler->StartGroup(call.captured, t_group.depth);
    }
    if (t_group.comm != &comm) return kNcclInvalidArgument;
    const bool is_skipped =
        Fault("skip") && std::strcmp(call.func, "Reduce") == 0 && call.count > 100'000;
    if (!is_skipped) comm.profiler->CallMade(t_group.handle, &call);
    t_group.calls.push_back(call);
  }
  return EndGroup();
}

// AlltoAll, Gather and Scatter of elements of four bytes, as NCCL makes them (enqueue.cc,
// taskAppend): each part is a Send or a Recv.
class Parts {
 public:
  Parts(NcclComm comm, size_t count, int datatype, CudaStream stream)
      : comm_(comm), count_(count), datatype_(datatype), stream_(stream) {}

  int nranks() const { return static_cast<Comm*>(comm_)->nranks; }
  int rank() const { return static_cast<Comm*>(comm_)->rank; }
  void Send(const void* buffer, int block, int peer) {
    parts_.push_back({"Send", static_cast<const float*>(buffer) + Offset(block), nullptr, count_,
                      datatype_, peer, true, false, stream_});
  }
  void Receive(void* buffer, int block, int peer) {
    parts_.push_back({"Recv", nullptr, static_cast<float*>(buffer) + Offset(block), count_,
                      datatype_, peer, true, false, stream_});
  }
  NcclResult Make() { return Add(comm_, std::move(parts_)); }

 private:
  size_t Offset(int block) const { return static_cast<size_t>(block) * count_; }

  const NcclComm comm_;
  const size_t count_;
  const int datatype_;
  const CudaStream stream_;
  std::vector<Call> parts_;
};

NcclResult AddCollective(NcclComm comm, const char* func, const void* send, void* recv,
                         size_t count, int datatype, int root, CudaStream stream) {
  return Add(comm, {{func, send, recv, count, datatype, root, false, false, stream}});
}

NcclResult NewComm(NcclComm* handle, int nranks, const NcclUniqueId& id, int rank,
                   const NcclConfig* config) {
  auto* comm = new Comm;
  comm->path = id.internal;
  comm->rank = rank;
  comm->nranks = nranks;
  const char* name = config != nullptr ? config->comm_name : nullptr;
  if (config != nullptr) comm->blocking = config->blocking != 0;
  *handle = comm;
  comm->Run([comm, name] { Connect(*comm, name); });
  return comm->blocking ? kNcclSuccess : kNcclInProgress;
}

}  // namespace

extern "C" {

NcclResult ncclGetVersion(int* version) {
  *version = Version();
  return kNcclSuccess;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  const char* folder = Variable("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/fake_nccl.XXXXXX";
  if (path.size() >= sizeof(id->internal)) path = "/tmp/fake_nccl.XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return kNcclInvalidArgument;
  close(fd);
  std::memcpy(id->internal, path.c_str(), path.size() + 1);
  return kNcclSuccess;
}

NcclResult ncclCommInitRank(NcclComm* comm, int nranks, NcclUniqueId id, int rank) {
  return NewComm(comm, nranks, id, rank, nullptr);
}

NcclResult ncclCommInitRankConfig(NcclComm* comm, int nranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  return NewComm(comm, nranks, id, rank, config);
}

NcclResult ncclCommSplit(NcclComm parent_handle, int color, int key, NcclComm* child,
                         NcclConfig* config) {
  auto& parent = *static_cast<Comm*>(parent_handle);
  uint64_t all[kMaxRanks][2];
  parent.exchange->Publish({static_cast<uint64_t>(color), static_cast<uint64_t>(key)}, all);
  int rank = 0;
  int nranks = 0;
  for (int i = 0; i < parent.nranks; ++i) {
    if (all[i][0] != static_cast<uint64_t>(color)) continue;
    ++nranks;
    const auto other = static_cast<int>(all[i][1]);
    if (other < key || (other == key && i < parent.rank)) ++rank;
  }
  NcclUniqueId id{};
  const std::string path =
      parent.path + "." + std::to_string(parent.splits++) + "." + std::to_string(color);
  std::strncpy(id.internal, path.c_str(), sizeof(id.internal) - 1);
  return NewComm(child, nranks, id, rank, config);
}

NcclResult ncclCommUserRank(NcclComm comm, int* rank) {
  *rank = static_cast<Comm*>(comm)->rank;
  return kNcclSuccess;
}

NcclResult ncclCommCount(NcclComm comm, int* count) {
  *count = static_cast<Comm*>(comm)->nranks;
  return kNcclSuccess;
}

NcclResult ncclCommFinalize(NcclComm) { return kNcclSuccess; }

NcclResult ncclCommDestroy(NcclComm handle) {
  auto* comm = static_cast<Comm*>(handle);
  if (comm->worker.joinable()) comm->worker.join();
  delete comm;
  return kNcclSuccess;
}

// Work in flight is left as it is: the process ends next.
NcclResult ncclCommAbort(NcclComm) { return kNcclSuccess; }

NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* result) {
  *result = static_cast<Comm*>(comm)->result.load();
  return kNcclSuccess;
}

NcclResult ncclGroupStart() {
  ++t_group.depth;
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() { return EndGroup(); }

NcclResult ncclAllReduce(const void* send, void* recv, size_t count, int datatype, int,
                         NcclComm comm, CudaStream stream) {
  return AddCollective(comm, "AllReduce", send, recv, count, datatype, 0, stream);
}

NcclResult ncclAllGather(const void* send, void* recv, size_t count, int datatype, NcclComm comm,
                         CudaStream stream) {
  return AddCollective(comm, "AllGather", send, recv, count, datatype, 0, stream);
}

NcclResult ncclReduceScatter(const void* send, void* recv, size_t count, int datatype, int,
                             NcclComm comm, CudaStream stream) {
  return AddCollective(comm, "ReduceScatter", send, recv, count, datatype, 0, stream);
}

NcclResult ncclBroadcast(const void* send, void* recv, size_t count, int datatype, int root,
                         NcclComm comm, CudaStream stream) {
  return AddCollective(comm, "Broadcast", send, recv, count, datatype, root, stream);
}

NcclResult ncclReduce(const void* send, void* recv, size_t count, int datatype, int, int root,
                      NcclComm comm, CudaStream stream) {
  return AddCollective(comm, "Reduce", send, recv, count, datatype, root, stream);
}

NcclResult ncclSend(const void* send, size_t count, int datatype, int peer, NcclComm comm,
                    CudaStream stream) {
  return Add(comm, {{"Send", send, nullptr, count, datatype, peer, true, false, stream}});
}

NcclResult ncclRecv(void* recv, size_t count, int datatype, int peer, NcclComm comm,
                    CudaStream stream) {
  return Add(comm, {{"Recv", nullptr, recv, count, datatype, peer, true, false, stream}});
}

NcclResult ncclAlltoAll(const void* send, void* recv, size_t count, int datatype, NcclComm comm,
                        CudaStream stream) {
  Parts parts(comm, count, datatype, stream);
  for (int peer = 0; peer < parts.nranks(); ++peer) {
    parts.Send(send, peer, peer);
    parts.Receive(recv, peer, peer);
  }
  return parts.Make();
}

NcclResult ncclGather(const void* send, void* recv, size_t count, int datatype, int root,
                      NcclComm comm, CudaStream stream) {
  Parts parts(comm, count, datatype, stream);
  parts.Send(send, 0, root);
  for (int peer = 0; parts.rank() == root && peer < parts.nranks(); ++peer) {
    parts.Receive(recv, peer, peer);
  }
  return parts.Make();
}

NcclResult ncclScatter(const void* send, void* recv, size_t count, int datatype, int root,
                       NcclComm comm, CudaStream stream) {
  Parts parts(comm, count, datatype, stream);
  for (int peer = 0; parts.rank() == root && peer < parts.nranks(); ++peer) {
    parts.Send(send, peer, peer);
  }
  parts.Receive(recv, 0, root);
  return parts.Make();
}

const char* ncclGetErrorString(NcclResult) { return "error of the stand-in"; }
const char* ncclGetLastError(NcclComm) { return ""; }

}  // extern "C"
}  // namespace nccl_pulse::fake
