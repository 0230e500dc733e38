#include "simulation/callbacks.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v6.h"

namespace nccl_pulse::simulation {
namespace {

// One mask per process; every init writes it.
int g_mask = 0;
std::mutex g_mutex;  // guards the next three
void* g_library = nullptr;
abi::v5::Profiler* g_plugin = nullptr;
int g_users = 0;

const char* const kDatatypes[] = {"ncclInt8",    "Unknown",     "ncclInt32",   "ncclUint32",
                                  "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                  "ncclFloat64", "ncclBfloat16"};
const size_t kElementBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

constexpr int kChannels = 2;

bool Load(const Release& release) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_users++ > 0) return g_plugin != nullptr;
  if (release.library == nullptr) return false;
  g_library = dlopen(release.library, RTLD_NOW | RTLD_LOCAL);
  if (g_library == nullptr) {
    release.logger(abi::kLogInfo, 0, "", 0, "no profiler plugin: %s", dlerror());
    return false;
  }
  // The newest version that both know. The fields that v6 and v7 add to v5 are behind those used
  // here, and so are those that v5 adds to operations of v4.
  const int oldest_api = std::min(release.newest_api, 5);
  for (int api = release.newest_api; api >= oldest_api && g_plugin == nullptr; --api) {
    const std::string symbol = "ncclProfiler_v" + std::to_string(api);
    g_plugin = static_cast<abi::v5::Profiler*>(dlsym(g_library, symbol.c_str()));
  }
  return g_plugin != nullptr;
}

void Unload() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (--g_users > 0) return;
  if (g_library != nullptr) dlclose(g_library);
  g_library = nullptr;
  g_plugin = nullptr;
}

}  // namespace

Profiler::Profiler(const Identity& identity, const Release& release)
    : identity_(identity), release_(release) {
  if (Load(release) && ReportsCalls()) {
    g_plugin->init(&context_, identity.comm_id, &g_mask, identity.name, identity.nnodes,
                   identity.nranks, identity.rank, release.logger);
  } else if (g_plugin != nullptr) {
    reinterpret_cast<abi::v4::Init*>(reinterpret_cast<void*>(g_plugin->init))(
        &context_, &g_mask, identity.name, identity.comm_id, identity.nnodes, identity.nranks,
        identity.rank, release.logger);
  }
  progress_ = std::thread([this] { Progress(); });
}

Profiler::~Profiler() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  progress_.join();
  if (g_plugin != nullptr && context_ != nullptr) g_plugin->finalize(context_);
  Unload();
}

bool Profiler::IsReported(const Call& call) const {
  return release_.reports_broadcast || std::strcmp(call.func, "Broadcast") != 0;
}

bool Profiler::Wants(uint32_t bits) const {
  // Read as NCCL does: a communicator being created may write it.
  const auto mask = static_cast<uint32_t>(__atomic_load_n(&g_mask, __ATOMIC_RELAXED));
  return g_plugin != nullptr && (mask & bits) != 0;
}

bool Profiler::sees_replays() const { return identity_.has_traffic || Wants(abi::kEventKernelCh); }

void* Profiler::Start(abi::v5::Descriptor* descriptor) {
  // Fields that later versions add to the descriptor are zero.
  struct {
    abi::v5::Descriptor known;
    uint64_t more[8];
  } event{*descriptor, {}};
  static_assert(sizeof(event) >= sizeof(abi::v6::Descriptor));
  void* handle = nullptr;
  g_plugin->startEvent(context_, &handle, &event.known);
  return handle;
}

void Profiler::Stop(void* handle) {
  if (handle != nullptr) g_plugin->stopEvent(handle);
}

void* Profiler::StartGroup(bool captured, int depth) {
  if (!ReportsCalls() || !Wants(~abi::kEventProxyCtrl)) return nullptr;
  abi::v5::Descriptor event{};
  event.type = abi::kEventGroupApi;
  event.groupApi.graphCaptured = captured;
  event.groupApi.groupDepth = depth;
  void* group = Start(&event);
  if (group != nullptr) {
    g_plugin->recordEventState(group, abi::kStateGroupStartApiStop, nullptr);
  }
  return group;
}

void Profiler::StartEnd(void* group) {
  if (group != nullptr) {
    g_plugin->recordEventState(group, abi::kStateGroupEndApiStart, nullptr);
  }
}

void Profiler::StopGroup(void* group) { Stop(group); }

void Profiler::CallMade(void* group, Call* call) {
  constexpr uint32_t kDependants = abi::kEventProxyOp | abi::kEventProxyStep | abi::kEventKernelCh;
  const uint32_t bits =
      call->is_p2p ? abi::kEventP2pApi | abi::kEventP2p : abi::kEventCollApi | abi::kEventColl;
  if (!ReportsCalls() || !Wants(bits | kDependants)) return;
  abi::v5::Descriptor event{};
  event.parentObj = group;
  if (call->is_p2p) {
    event.type = abi::kEventP2pApi;
    event.p2pApi = {call->func, call->count, kDatatypes[call->datatype], call->stream,
                    call->captured};
  } else {
    event.type = abi::kEventCollApi;
    event.collApi = {call->func,         call->count,  kDatatypes[call->datatype],
                     call->root_or_peer, call->stream, call->captured};
  }
  call->api_handle = Start(&event);
  Stop(call->api_handle);
}

void Profiler::Launch(void* group, Stream* stream, const std::vector<Call>& calls,
                      const std::function<void()>& enqueue_kernel) {
  // NCCL searches the plan for a task with a mask (ncclProfilerStartKernelLaunchEvent).
  const bool is_reported = std::any_of(calls.begin(), calls.end(),
                                       [this](const Call& call) { return IsReported(call); });
  if (!Wants(abi::kEventKernelLaunch) || !is_reported) return enqueue_kernel();
  abi::v5::Descriptor event{};
  event.type = abi::kEventKernelLaunch;
  event.parentObj = group;
  event.kernelLaunch.stream = stream;
  void* handle = Start(&event);
  enqueue_kernel();
  Stop(handle);
}

void Profiler::Enqueue(const std::vector<Call>& calls) {
  constexpr uint32_t kDependants = abi::kEventProxyOp | abi::kEventProxyStep | abi::kEventKernelCh;
  if (!Wants(abi::kEventColl | abi::kEventP2p | kDependants)) return;
  const bool is_reported = std::any_of(calls.begin(), calls.end(),
                                       [this](const Call& call) { return IsReported(call); });
  if (!is_reported) return;
  abi::v5::Descriptor group{};
  group.type = abi::kEventGroup;
  group.rank = identity_.rank;
  void* parent_group = Start(&group);
  // As up to 2.27.7 (src/plugin/profiler.cc, ncclProfilerStartTaskEvents).
  if (!ReportsCalls() && parent_group == nullptr) return;
  std::vector<void*> handles;
  // Collectives first, in any call order.
  std::vector<Call> ordered;
  for (const Call& call : calls) {
    if (!call.is_p2p && IsReported(call)) ordered.push_back(call);
  }
  for (const Call& call : calls) {
    if (call.is_p2p) ordered.push_back(call);
  }
  for (const Call& call : ordered) {
    abi::v5::Descriptor event{};
    event.rank = identity_.rank;
    event.parentObj = ReportsCalls() ? call.api_handle : parent_group;
    const bool in_bytes =
        std::strcmp(call.func, "AllGather") == 0 || std::strcmp(call.func, "Broadcast") == 0;
    if (call.is_p2p) {
      event.type = abi::kEventP2p;
      event.p2p = {call.func,
                   call.recv != nullptr ? call.recv : const_cast<void*>(call.send),
                   kDatatypes[call.datatype],
                   call.count,
                   call.root_or_peer,
                   1,
                   parent_group};
    } else {
      event.type = abi::kEventColl;
      event.coll.seqNumber = sequence_[call.func]++;
      event.coll.func = call.func;
      event.coll.sendBuff = call.send;
      event.coll.recvBuff = call.recv;
      event.coll.count = in_bytes ? call.count * kElementBytes[call.datatype] : call.count;
      event.coll.root = call.root_or_peer;
      event.coll.datatype = in_bytes ? "ncclInt8" : kDatatypes[call.datatype];
      event.coll.nChannels = kChannels;
      event.coll.nWarps = 16;
      event.coll.algo = "RING";
      event.coll.proto = call.count < 10'000 ? "LL" : "SIMPLE";
      event.coll.parentGroup = parent_group;
    }
    handles.push_back(Start(&event));
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.emplace_back([this, call, handle = handles.back()] { RunChildren(call, handle); });
    changed_.notify_one();
  }
  for (void* handle : handles) Stop(handle);
  Stop(parent_group);
}

void Profiler::RunChildren(const Call& call, void* parent) {
  if (call.is_p2p && call.root_or_peer == identity_.rank) return;  // a copy within the GPU
  std::vector<void*> proxies;
  if (identity_.has_traffic && Wants(abi::kEventProxyOp | abi::kEventProxyStep)) {
    const int count = call.is_p2p ? 1 : 2 * kChannels;
    for (int i = 0; i < count; ++i) {
      abi::v5::Descriptor event{};
      event.type = abi::kEventProxyOp;
      event.parentObj = parent;
      event.rank = identity_.rank;
      event.proxyOp = {getpid(),
                       static_cast<uint8_t>(i / 2),
                       (identity_.rank + 1) % identity_.nranks,
                       1,
                       131072,
                       call.is_p2p ? (call.send != nullptr ? 1 : 0) : i % 2};
      proxies.push_back(Start(&event));
    }
  }
  if (Wants(abi::kEventKernelCh)) {
    for (int channel = 0; channel < (call.is_p2p ? 1 : kChannels); ++channel) {
      abi::v5::Descriptor event{};
      event.type = abi::kEventKernelCh;
      event.parentObj = parent;
      event.kernelCh = {static_cast<uint8_t>(channel), gpu_ns_};
      void* handle = Start(&event);
      if (handle == nullptr) continue;
      abi::v5::StateArgs args{};
      args.kernelCh.pTimer = gpu_ns_ + 20'000;
      g_plugin->recordEventState(handle, abi::kStateKernelChStop, &args);
      Stop(handle);
    }
    gpu_ns_ += 30'000;
  }
  for (void* proxy : proxies) {
    if (proxy != nullptr) {
      g_plugin->recordEventState(proxy, abi::kStateProxyOpInProgress, nullptr);
    }
  }
  for (void* proxy : proxies) Stop(proxy);
}

void Profiler::Progress() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> run = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    run();
    lock.lock();
  }
}

}  // namespace nccl_pulse::simulation
