#include "bench/replay/profiler_library.h"

#include <dlfcn.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plugin/abi/profiler_v1.h"
#include "plugin/abi/profiler_v2.h"
#include "plugin/abi/profiler_v3.h"
#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"
#include "plugin/abi/profiler_v7.h"

namespace nccl_pulse {
namespace {

// Content of memory that NCCL does not initialize.
constexpr int kGarbageByte = 0xa5;

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Buffers are not recorded. A plugin must not read them: the first page is never mapped.
void* UnreadableBuffer() { return Pointer(0x10); }

template <size_t Size>
uint8_t IndexOf(const char* const (&names)[Size], std::string_view name, uint8_t otherwise) {
  for (size_t i = 0; i < Size; ++i) {
    if (names[i] == name) return static_cast<uint8_t>(i);
  }
  return otherwise;
}

struct Unload {
  void operator()(void* library) const { dlclose(library); }
};
using LibraryHandle = std::unique_ptr<void, Unload>;

template <int Version, typename Profiler>
class VersionedLibrary;

template <int Version, typename InitFunction, typename Descriptor, typename StateArgs>
class VersionedLibrary<Version, abi::ProfilerTable<InitFunction, Descriptor, StateArgs>> final
    : public ProfilerLibrary {
 public:
  using Profiler = abi::ProfilerTable<InitFunction, Descriptor, StateArgs>;

  VersionedLibrary(LibraryHandle library, void* symbol)
      : library_(std::move(library)), profiler_(static_cast<Profiler*>(symbol)) {}

  int version() const override { return Version; }

  int Init(void** context, int* mask, const TraceCommunicator& communicator, uint64_t comm_id,
           abi::DebugLogger logger) override {
    if constexpr (Version >= 5) {
      return profiler_->init(context, comm_id, mask, communicator.name, communicator.nnodes,
                             communicator.nranks, communicator.rank, logger);
    } else if constexpr (Version == 4) {
      return profiler_->init(context, mask, communicator.name, comm_id, communicator.nnodes,
                             communicator.nranks, communicator.rank, logger);
    } else {
      return profiler_->init(context, mask);
    }
  }

  void Start(void* context, void** handle, const TraceEvent& event, void* parent,
             void* parent_group, int32_t pid) override {
    Descriptor descriptor;
    std::memset(&descriptor, Version == 4 ? kGarbageByte : 0, sizeof(descriptor));
    if constexpr (Version <= 3) *handle = nullptr;
    descriptor.type = static_cast<decltype(descriptor.type)>(event.type);
    const bool operation = event.type == abi::kEventColl || event.type == abi::kEventP2p;
    descriptor.parentObj = operation && Version <= 4 ? parent_group : parent;
    descriptor.rank = event.rank;
    FillDetails(descriptor, event, parent_group, pid);
    profiler_->startEvent(context, handle, &descriptor);
  }

  void Stop(void* handle) override { profiler_->stopEvent(handle); }

  void Record(void* handle, const TraceEvent& event) override {
    const TraceEvent::State& recorded = event.state;
    if (event.type == abi::kEventGroupApi) {  // versions that have group states
      profiler_->recordEventState(handle, recorded.state, nullptr);
      return;
    }
    StateArgs args;
    std::memset(&args, Version == 4 ? kGarbageByte : 0, sizeof(args));
    if (event.type == abi::kEventProxyCtrl) {
      args.proxyCtrl.appendedProxyOps = recorded.appended;
    } else if constexpr (Version >= 4) {
      if (event.type == abi::kEventProxyStep) args.proxyStep.transSize = recorded.trans_bytes;
      if (event.type == abi::kEventKernelCh) args.kernelCh.pTimer = recorded.p_timer_ns;
    }
    profiler_->recordEventState(handle, recorded.state, &args);
  }

  void Finalize(void* context) override { profiler_->finalize(context); }

 private:
  static void FillDetails(Descriptor& descriptor, const TraceEvent& event, void* parent_group,
                          int32_t pid) {
    switch (event.type) {
      case abi::kEventColl:
        FillColl(descriptor, event.operation, parent_group);
        break;
      case abi::kEventP2p:
        FillP2p(descriptor, event.operation, parent_group);
        break;
      case abi::kEventProxyOp: {
        const TraceEvent::ProxyOp& op = event.proxy_op;
        descriptor.proxyOp = {pid,      op.channel,     op.peer,
                              op.steps, op.chunk_bytes, static_cast<int>(op.is_send)};
        break;
      }
      case abi::kEventProxyStep:
        descriptor.proxyStep.step = event.proxy_step.step;
        break;
      case abi::kEventKernelCh:
        if constexpr (Version >= 3) descriptor.kernelCh.channelId = event.kernel_ch.channel;
        if constexpr (Version >= 4) descriptor.kernelCh.pTimer = event.kernel_ch.p_timer_ns;
        break;
      default:
        if constexpr (Version >= 5) FillApi(descriptor, event);
        break;
    }
  }

  static void FillApi(Descriptor& descriptor, const TraceEvent& event) {
    const TraceEvent::Call& call = event.call;
    switch (event.type) {
      case abi::kEventGroupApi:
        descriptor.groupApi = {event.group_call.captured, event.group_call.depth};
        break;
      case abi::kEventCollApi:
        descriptor.collApi.func = call.func;
        descriptor.collApi.count = call.count;
        descriptor.collApi.datatype = call.datatype;
        descriptor.collApi.root = call.root;
        descriptor.collApi.stream = Pointer(call.stream);
        descriptor.collApi.graphCaptured = call.captured;
        break;
      case abi::kEventP2pApi:
        descriptor.p2pApi.func = call.func;
        descriptor.p2pApi.count = call.count;
        descriptor.p2pApi.datatype = call.datatype;
        descriptor.p2pApi.stream = Pointer(call.stream);
        descriptor.p2pApi.graphCaptured = call.captured;
        break;
      case abi::kEventKernelLaunch:
        descriptor.kernelLaunch.stream = Pointer(event.launch.stream);
        break;
      default:
        break;
    }
  }

  static void FillColl(Descriptor& descriptor, const TraceEvent::Operation& operation,
                       [[maybe_unused]] void* parent_group) {
    auto& coll = descriptor.coll;
    coll.seqNumber = operation.seq_number;
    coll.sendBuff = UnreadableBuffer();
    coll.recvBuff = UnreadableBuffer();
    coll.count = operation.count;
    coll.root = operation.root_or_peer;
    coll.nWarps = operation.warps;
    if constexpr (Version >= 4) {
      coll.nChannels = operation.channels;
    } else {
      coll.nMaxChannels = operation.channels;
    }
    if constexpr (Version >= 5) coll.parentGroup = parent_group;
    if constexpr (Version >= 2) {
      coll.func = operation.func;
      coll.datatype = operation.datatype;
      coll.algo = operation.algo;
      coll.proto = operation.proto;
    } else {
      coll.func = IndexOf(abi::kFunctionNames, operation.func, 6);
      coll.datatype = IndexOf(abi::kDatatypeNames, operation.datatype, 8);
      coll.algo = IndexOf(abi::kAlgorithmNames, operation.algo, 6);
      coll.proto = IndexOf(abi::kProtocolNames, operation.proto, 2);
    }
  }

  static void FillP2p(Descriptor& descriptor, const TraceEvent::Operation& operation,
                      [[maybe_unused]] void* parent_group) {
    auto& p2p = descriptor.p2p;
    p2p.buff = UnreadableBuffer();
    p2p.count = operation.count;
    p2p.peer = operation.root_or_peer;
    if constexpr (Version >= 5) {
      p2p.nChannels = operation.channels;
      p2p.parentGroup = parent_group;
    }
    if constexpr (Version >= 2) {
      p2p.func = operation.func;
      p2p.datatype = operation.datatype;
    } else {
      p2p.func = IndexOf(abi::kFunctionNames, operation.func, 6);
      p2p.datatype = IndexOf(abi::kDatatypeNames, operation.datatype, 8);
    }
  }

  LibraryHandle library_;
  Profiler* profiler_;
};

template <int Version, typename Profiler>
std::unique_ptr<ProfilerLibrary> Wrap(LibraryHandle library, void* symbol) {
  return std::make_unique<VersionedLibrary<Version, Profiler>>(std::move(library), symbol);
}

// By version, from 1 on.
constexpr decltype(&Wrap<1, abi::v1::Profiler>) kWrap[] = {
    Wrap<1, abi::v1::Profiler>, Wrap<2, abi::v2::Profiler>, Wrap<3, abi::v3::Profiler>,
    Wrap<4, abi::v4::Profiler>, Wrap<5, abi::v5::Profiler>, Wrap<6, abi::v6::Profiler>,
    Wrap<7, abi::v7::Profiler>};

}  // namespace

std::unique_ptr<ProfilerLibrary> ProfilerLibrary::Load(const std::string& path, int api,
                                                       ReplayError* error) {
  LibraryHandle library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    // glibc keeps the message per thread.
    const char* reason = dlerror();
    *error = {kReplayNoLibrary, absl::StrCat("cannot load the library: ", reason)};
    return nullptr;
  }
  const int newest = api == 0 ? kNewestApi : api;
  const int oldest = api == 0 ? kOldestApi : api;
  for (int version = newest; version >= oldest; --version) {
    void* symbol = dlsym(library.get(), absl::StrCat("ncclProfiler_v", version).c_str());
    if (symbol != nullptr) return kWrap[version - kOldestApi](std::move(library), symbol);
  }
  *error = {kReplayNoSymbol,
            api == 0 ? absl::StrCat(path, " exports none of ncclProfiler_v1 ... ncclProfiler_v7")
                     : absl::StrCat(path, " does not export ncclProfiler_v", api)};
  return nullptr;
}

}  // namespace nccl_pulse
