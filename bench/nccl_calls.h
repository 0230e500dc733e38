// NcclCalls makes the callbacks that NCCL makes for one operation, in its order and by its rules,
// through a library opened with dlopen. It does nothing else, so that only the plugin is timed.
#ifndef BENCH_NCCL_CALLS_H_
#define BENCH_NCCL_CALLS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"
#include "plugin/abi/profiler_v7.h"
#include "plugin/abi/pulse_query.h"

namespace nccl_pulse::bench {

// API versions that report kernel launches.
struct ApiV5 {
  using Descriptor = abi::v5::Descriptor;
  using Profiler = abi::v5::Profiler;
  static constexpr const char* kSymbol = "ncclProfiler_v5";
};
struct ApiV6 {
  using Descriptor = abi::v6::Descriptor;
  using Profiler = abi::v6::Profiler;
  static constexpr const char* kSymbol = "ncclProfiler_v6";
};
struct ApiV7 {
  using Descriptor = abi::v7::Descriptor;
  using Profiler = abi::v7::Profiler;
  static constexpr const char* kSymbol = "ncclProfiler_v7";
};

// Returns the plugin's export of that name. Exits with a message if it cannot be used.
const void* FindProfiler(const std::string& library, const char* symbol);
// Replaces NCCL's logger.
[[gnu::format(printf, 5, 6)]] inline void IgnoreLog(int /*level*/, unsigned long /*flags*/,
                                                    const char* /*file*/, int /*line*/,
                                                    const char* /*format*/, ...) {}
// Returns the path of a library ("bench/libempty_plugin.so") in runfiles or beside this program.
std::string FindLibrary(const std::string& name);

// Loads a stand-in for the CUDA driver, which plugins then find. Exits on failure.
void* OpenDriver(const char* name);

template <typename Api>
class NcclCalls {
 public:
  using Descriptor = typename Api::Descriptor;
  static constexpr int kRanks = 8;

  // `library`: path of a plugin. Exits with a message if it cannot be used.
  explicit NcclCalls(const std::string& library)
      : profiler_(static_cast<const typename Api::Profiler*>(FindProfiler(library, Api::kSymbol))) {
  }

  // Initializes a communicator; NCCL keeps its context in `context`.
  void* Init(uint64_t comm_id, void** context) {
    int mask = 0;
    profiler_->init(context, comm_id, &mask, "bench", 1, kRanks, 0, IgnoreLog);
    return *context;
  }
  void* Init(uint64_t comm_id) {
    void* context = nullptr;
    return Init(comm_id, &context);
  }
  void Finalize(void* context) { profiler_->finalize(context); }

  // Makes all callbacks of one eager AllReduce on the launching thread. Returns the handle of the
  // Coll event.
  void* EagerCollective(void* context, uint64_t sequence, uint8_t channels,
                        void* stream = nullptr) {
    Descriptor call{};
    call.type = abi::kEventCollApi;
    call.collApi.func = kFunction;
    call.collApi.count = kCount;
    call.collApi.datatype = kDatatype;
    Descriptor coll{};
    coll.type = abi::kEventColl;
    coll.coll.seqNumber = sequence;
    coll.coll.func = kFunction;
    coll.coll.count = kCount;
    coll.coll.datatype = kDatatype;
    coll.coll.nChannels = channels;
    coll.coll.nWarps = 16;
    coll.coll.algo = kAlgorithm;
    coll.coll.proto = kProtocol;
    return EagerOperation(context, stream, &call, &coll, &coll.coll.parentGroup);
  }

  // Makes all callbacks of one eager Send to rank 1.
  void EagerSend(void* context) {
    Descriptor call{};
    call.type = abi::kEventP2pApi;
    call.p2pApi.func = "Send";
    call.p2pApi.count = kCount;
    call.p2pApi.datatype = kDatatype;
    Descriptor p2p{};
    p2p.type = abi::kEventP2p;
    p2p.p2p.func = "Send";
    p2p.p2p.count = kCount;
    p2p.p2p.datatype = kDatatype;
    p2p.p2p.peer = 1;
    p2p.p2p.nChannels = 4;
    EagerOperation(context, nullptr, &call, &p2p, &p2p.p2p.parentGroup);
  }

  void* StartProxyOp(void* context, void* coll, int32_t pid) {
    Descriptor event{};
    event.type = abi::kEventProxyOp;
    event.parentObj = coll;
    event.proxyOp.pid = pid;
    void* handle = nullptr;
    profiler_->startEvent(context, &handle, &event);
    return handle;
  }
  void StopProxyOp(void* handle) {
    if (handle != nullptr) profiler_->stopEvent(handle);
  }

  // Makes one step of a send: start, three states, stop. NCCL makes these only if the
  // plugin's mask requests them.
  void ProxyStep(void* context, void* proxy_op) {
    Descriptor event{};
    event.type = abi::kEventProxyStep;
    event.parentObj = proxy_op;
    void* handle = nullptr;
    profiler_->startEvent(context, &handle, &event);
    if (handle == nullptr) return;
    abi::v5::StateArgs args{};
    profiler_->recordEventState(handle, abi::kStateProxyStepSendGpuWait, &args);
    profiler_->recordEventState(handle, abi::kStateProxyStepSendPeerWait, &args);
    profiler_->recordEventState(handle, abi::kStateProxyStepSendWait, &args);
    profiler_->stopEvent(handle);
  }

  void* StartKernelChannel(void* context, void* coll, uint8_t channel, uint64_t gpu_ns) {
    Descriptor event{};
    event.type = abi::kEventKernelCh;
    event.parentObj = coll;
    event.kernelCh.channelId = channel;
    event.kernelCh.pTimer = gpu_ns;
    void* handle = nullptr;
    profiler_->startEvent(context, &handle, &event);
    return handle;
  }
  void StopKernelChannel(void* handle, uint64_t gpu_ns) {
    if (handle == nullptr) return;
    abi::v5::StateArgs args{};
    args.kernelCh.pTimer = gpu_ns;
    profiler_->recordEventState(handle, abi::kStateKernelChStop, &args);
    profiler_->stopEvent(handle);
  }

 private:
  // Makes the callbacks around these two events, and returns the second one's handle.
  void* EagerOperation(void* context, void* stream, Descriptor* call_event,
                       Descriptor* operation_event, void** parent_group) {
    Descriptor event{};
    void* group = nullptr;
    event.type = abi::kEventGroupApi;
    event.groupApi.groupDepth = 1;
    profiler_->startEvent(context, &group, &event);
    if (group != nullptr) profiler_->recordEventState(group, abi::kStateGroupStartApiStop, nullptr);

    void* call = nullptr;
    call_event->parentObj = group;
    profiler_->startEvent(context, &call, call_event);
    if (call != nullptr) profiler_->stopEvent(call);
    if (group != nullptr) profiler_->recordEventState(group, abi::kStateGroupEndApiStart, nullptr);

    void* launch = nullptr;
    event = Descriptor{};
    event.type = abi::kEventKernelLaunch;
    event.parentObj = group;
    event.kernelLaunch.stream = stream;
    profiler_->startEvent(context, &launch, &event);
    if (launch != nullptr) profiler_->stopEvent(launch);

    event = Descriptor{};
    event.type = abi::kEventGroup;
    profiler_->startEvent(context, parent_group, &event);
    void* operation = nullptr;
    operation_event->parentObj = call;
    profiler_->startEvent(context, &operation, operation_event);
    if (operation != nullptr) profiler_->stopEvent(operation);
    if (*parent_group != nullptr) profiler_->stopEvent(*parent_group);
    if (group != nullptr) profiler_->stopEvent(group);
    return operation;
  }

  static constexpr size_t kCount = 262144;  // 1 MiB of float32
  static constexpr const char* kFunction = "AllReduce";
  static constexpr const char* kDatatype = "ncclFloat32";
  static constexpr const char* kAlgorithm = "RING";
  static constexpr const char* kProtocol = "SIMPLE";

  const typename Api::Profiler* profiler_;
};

// CountedCalls makes the same calls on a communicator whose NCCL work counter the plugin has
// proven. A launch soon after another then has no CUDA event.
class CountedCalls {
 public:
  static constexpr const char* kDriver = "bench/counted/libcuda.so.1";

  explicit CountedCalls(const std::string& library);
  // Returns once the counter is proven. Exits if that takes too long.
  void* Init(uint64_t comm_id);
  void Finalize(void* context) { calls_.Finalize(context); }
  void* EagerCollective(void* context, uint64_t /*sequence*/, uint8_t channels) {
    void* const coll = calls_.EagerCollective(context, sequence_++, channels);
    // Only the sum over channels matters. The thread pulse-work copies it concurrently.
    __atomic_store_n(counter_, *counter_ + channels, __ATOMIC_RELAXED);
    return coll;
  }

 private:
  using Allocate = int(uint64_t* address, size_t bytes);
  // NCCL's memory layout (plugin/cuda/work_search.h).
  struct Communicator {
    char before[16384];
    uint64_t block;
    char between[6600];
    void* context;
  };

  NcclCalls<ApiV6> calls_;
  Allocate* allocate_;
  const std::atomic<unsigned>* records_;  // number of events recorded
  std::unique_ptr<Communicator> communicator_;
  uint64_t* counter_ = nullptr;
  uint64_t sequence_ = 0;
};

// DurationQuery asks the plugin for the durations of EagerCollective's AllReduces, as a tuner does.
class DurationQuery {
 public:
  explicit DurationQuery(const std::string& library)
      : query_(reinterpret_cast<ncclPulseQuery_v1_t*>(
            const_cast<void*>(FindProfiler(library, "ncclPulseQuery_v1")))) {}

  bool Ask(uint64_t comm_id) {
    return query_(comm_id, "AllReduce", 1 << 20, &durations_) == ncclPulseOk;
  }
  // Calls make_call(i) every millisecond until the plugin answers; it renews answers every second.
  // Returns false if it has not after 10,000 calls.
  template <typename MakeCall>
  bool WaitForAnswer(uint64_t comm_id, const MakeCall& make_call) {
    for (uint64_t i = 0; i < 10000 && !Ask(comm_id); ++i) {
      make_call(i);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Ask(comm_id);
  }

 private:
  ncclPulseQuery_v1_t* query_;
  ncclPulseDurations_v1_t durations_{};
};

}  // namespace nccl_pulse::bench

#endif  // BENCH_NCCL_CALLS_H_
