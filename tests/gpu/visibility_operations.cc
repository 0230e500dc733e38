#include "tests/gpu/visibility_operations.h"

#include <dlfcn.h>

#include <chrono>
#include <thread>

namespace nccl_pulse {
namespace {

constexpr uint64_t kCount = 16384;  // elements of a part, 64 KiB

// One that not every release has. Begin opens the libraries for all.
template <typename Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// Send, and receive from, every rank in one group of the program's own.
NcclResult Exchange(const Api& api, const CallArguments& a, bool with_self) {
  api.ncclGroupStart();
  for (int peer = 0; peer < a.nranks; ++peer) {
    if (peer == a.rank && !with_self) continue;
    const uint64_t offset = static_cast<uint64_t>(peer) * kCount;
    api.ncclSend(static_cast<float*>(a.send) + offset, kCount, kFloat32, peer, a.comm, a.stream);
    api.ncclRecv(static_cast<float*>(a.recv) + offset, kCount, kFloat32, peer, a.comm, a.stream);
  }
  return api.ncclGroupEnd();
}

NcclResult AllReduce(const Api& api, const CallArguments& a) {
  return api.ncclAllReduce(a.send, a.recv, kCount, kFloat32, kSum, a.comm, a.stream);
}
NcclResult AllGather(const Api& api, const CallArguments& a) {
  return api.ncclAllGather(a.send, a.recv, kCount, kFloat32, a.comm, a.stream);
}
NcclResult ReduceScatter(const Api& api, const CallArguments& a) {
  return api.ncclReduceScatter(a.send, a.recv, kCount, kFloat32, kSum, a.comm, a.stream);
}
// Rank 0 is to hang when it calls alone. So it is the root of what a root waits for, and not of
// what a root only sends.
NcclResult Broadcast(const Api& api, const CallArguments& a) {
  return api.ncclBroadcast(a.send, a.recv, kCount, kFloat32, a.nranks - 1, a.comm, a.stream);
}
NcclResult Reduce(const Api& api, const CallArguments& a) {
  return api.ncclReduce(a.send, a.recv, kCount, kFloat32, kSum, 0, a.comm, a.stream);
}

NcclResult AlltoAll(const Api& /*api*/, const CallArguments& a) {
  using Function = NcclResult (*)(const void*, void*, size_t, int, NcclComm, CudaStream);
  static const auto kFunction = Find<Function>("ncclAlltoAll");
  if (kFunction == nullptr) return kNcclInvalidArgument;
  return kFunction(a.send, a.recv, kCount, kFloat32, a.comm, a.stream);
}
NcclResult Rooted(const char* name, int root, const CallArguments& a) {
  using Function = NcclResult (*)(const void*, void*, size_t, int, int, NcclComm, CudaStream);
  const auto function = Find<Function>(name);
  if (function == nullptr) return kNcclInvalidArgument;
  return function(a.send, a.recv, kCount, kFloat32, root, a.comm, a.stream);
}
NcclResult Gather(const Api& /*api*/, const CallArguments& a) { return Rooted("ncclGather", 0, a); }
NcclResult Scatter(const Api& /*api*/, const CallArguments& a) {
  return Rooted("ncclScatter", a.nranks - 1, a);
}

struct WaitDescription {  // ncclWaitSignalDesc_t
  int operations, peer, signal, context;
};

// To the next rank, and waits for the rank before.
NcclResult PutAndWait(const Api& api, const CallArguments& a) {
  using Put = NcclResult (*)(const void*, size_t, int, int, void*, size_t, int, int, unsigned,
                             NcclComm, CudaStream);
  using Wait = NcclResult (*)(int, WaitDescription*, NcclComm, CudaStream);
  static const auto kPut = Find<Put>("ncclPutSignal");
  static const auto kWait = Find<Wait>("ncclWaitSignal");
  if (kPut == nullptr || kWait == nullptr) return kNcclInvalidArgument;
  WaitDescription wait{1, (a.rank + a.nranks - 1) % a.nranks, 0, 0};
  api.ncclGroupStart();
  kPut(a.send, kCount, kFloat32, (a.rank + 1) % a.nranks, a.recv_window, 0, 0, 0, 0, a.comm,
       a.stream);
  kWait(1, &wait, a.comm, a.stream);
  return api.ncclGroupEnd();
}

constexpr int kPolicyZero = 2;  // NCCL_CTA_POLICY_ZERO: by the copy engines, where they can

const Operation kOperations[] = {
    {"AllReduce", AllReduce},
    {"AllGather", AllGather},
    {"ReduceScatter", ReduceScatter},
    {"Broadcast", Broadcast},
    {"Reduce", Reduce},
    {"Send and Recv",
     [](const Api& api, const CallArguments& a) { return Exchange(api, a, false); }},
    {"Send and Recv, all-to-all",
     [](const Api& api, const CallArguments& a) { return Exchange(api, a, true); }},
    {"AlltoAll", AlltoAll},
    {"Gather", Gather},
    {"Scatter", Scatter},
    {"AllReduce, symmetric memory", AllReduce, true},
    {"AllGather, copy engines", AllGather, true, kPolicyZero},
    {"PutSignal and WaitSignal", PutAndWait, true},
};

}  // namespace

const Operation* FindOperation(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) return &operation;
  }
  return nullptr;
}

NcclResult ReduceFourBytes(const Api& api, const CallArguments& arguments, void* memory) {
  return api.ncclAllReduce(memory, memory, 1, kFloat32, kSum, arguments.comm, arguments.stream);
}

uint64_t BufferBytes(int nranks) { return static_cast<uint64_t>(nranks) * kCount * sizeof(float); }

NcclResult Finish(const Api& api, NcclComm comm, NcclResult result) {
  while (result == kNcclSuccess || result == kNcclInProgress) {
    NcclResult state = kNcclInProgress;
    result = api.ncclCommGetAsyncError(comm, &state);
    if (result != kNcclSuccess || state != kNcclInProgress) {
      return result != kNcclSuccess ? result : state;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return result;
}

NcclResult MakeWindows(const Api& api, CallArguments* a) {
  using Allocate = NcclResult (*)(void**, size_t);
  using Register = NcclResult (*)(NcclComm, void*, size_t, void**, int);
  constexpr int kSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
  static const auto kAllocate = Find<Allocate>("ncclMemAlloc");
  static const auto kRegister = Find<Register>("ncclCommWindowRegister");
  if (kAllocate == nullptr || kRegister == nullptr) return kNcclInvalidArgument;
  const uint64_t bytes = BufferBytes(a->nranks);
  void* send_window = nullptr;
  NcclResult result = kAllocate(&a->send, bytes);
  if (result == kNcclSuccess) result = kAllocate(&a->recv, bytes);
  if (result != kNcclSuccess) return result;
  result = Finish(api, a->comm, kRegister(a->comm, a->send, bytes, &send_window, kSymmetric));
  if (result != kNcclSuccess) return result;
  return Finish(api, a->comm, kRegister(a->comm, a->recv, bytes, &a->recv_window, kSymmetric));
}

}  // namespace nccl_pulse
