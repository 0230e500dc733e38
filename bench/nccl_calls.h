// Makes the callbacks that NCCL makes for one operation (API v5), in its order and by its rules,
// through a library opened with dlopen, and nothing else: what is timed is the plugin.
#ifndef BENCH_NCCL_CALLS_H_
#define BENCH_NCCL_CALLS_H_

#include <cstdint>
#include <string>

#include "plugin/abi/profiler_v5.h"

namespace nccl_pulse::bench {

class NcclCalls {
 public:
  using Descriptor = abi::v5::Descriptor;

  // `library`: path of a plugin. Exits with a message when it cannot be used.
  explicit NcclCalls(const std::string& library);

  // A communicator of the plugin.
  void* Init(uint64_t comm_id);
  void Finalize(void* context) { profiler_->finalize(context); }

  // Port of the plugin's endpoint, as its log line named it; 0: none.
  static int MetricsPort();

  // All callbacks of one eager AllReduce on the launching thread. Returns the handle of the Coll
  // event.
  void* EagerCollective(void* context, uint64_t sequence, uint8_t channels,
                        void* stream = nullptr) {
    Descriptor event{};
    void* group = nullptr;
    event.type = abi::kEventGroupApi;
    event.groupApi.groupDepth = 1;
    profiler_->startEvent(context, &group, &event);
    if (group != nullptr) profiler_->recordEventState(group, abi::kStateGroupStartApiStop, nullptr);

    void* call = nullptr;
    event = Descriptor{};
    event.type = abi::kEventCollApi;
    event.parentObj = group;
    event.collApi = {kFunction, kCount, kDatatype, 0, nullptr, false};
    profiler_->startEvent(context, &call, &event);
    if (call != nullptr) profiler_->stopEvent(call);
    if (group != nullptr) profiler_->recordEventState(group, abi::kStateGroupEndApiStart, nullptr);

    void* launch = nullptr;
    event = Descriptor{};
    event.type = abi::kEventKernelLaunch;
    event.parentObj = group;
    event.kernelLaunch.stream = stream;
    profiler_->startEvent(context, &launch, &event);
    if (launch != nullptr) profiler_->stopEvent(launch);

    void* task_group = nullptr;
    event = Descriptor{};
    event.type = abi::kEventGroup;
    profiler_->startEvent(context, &task_group, &event);
    void* coll = nullptr;
    event = Descriptor{};
    event.type = abi::kEventColl;
    event.parentObj = call;
    event.coll = {sequence,  kFunction, nullptr, nullptr,    kCount,    0,
                  kDatatype, channels,  16,      kAlgorithm, kProtocol, task_group};
    profiler_->startEvent(context, &coll, &event);
    if (coll != nullptr) profiler_->stopEvent(coll);
    if (task_group != nullptr) profiler_->stopEvent(task_group);
    if (group != nullptr) profiler_->stopEvent(group);
    return coll;
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

  // One step of a send: start, three states, stop. By its mask NCCL makes these only when asked
  // for.
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
    event.kernelCh = {channel, gpu_ns};
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
  static constexpr size_t kCount = 262144;  // 1 MiB of float32
  static constexpr const char* kFunction = "AllReduce";
  static constexpr const char* kDatatype = "ncclFloat32";
  static constexpr const char* kAlgorithm = "RING";
  static constexpr const char* kProtocol = "SIMPLE";

  const abi::v5::Profiler* profiler_;
};

// Where Bazel put a library of this package ("bench/libempty_plugin.so") or the plugin itself.
std::string FindLibrary(const std::string& name);

}  // namespace nccl_pulse::bench

#endif  // BENCH_NCCL_CALLS_H_
