#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

FakeGpu* gpu = nullptr;
constexpr uint64_t kBeginNs = 1000000000000;
constexpr uint32_t kProcessTag = 77;
constexpr int32_t kPid = 4711;

}  // namespace

FakeGpu::FakeGpu() {
  gpu = this;
  driver.context_get_current = [](CudaContext* context) {
    *context = gpu;
    return kCudaSuccess;
  };
  driver.context_set_current = [](CudaContext) { return kCudaSuccess; };
  driver.context_get_device = [](int* device) {
    *device = 3;
    return kCudaSuccess;
  };
  driver.context_get_id = [](CudaContext, uint64_t* id) {
    *id = 1;
    return kCudaSuccess;
  };
  driver.event_create = [](CudaEvent* event, unsigned) {
    *event = gpu;
    return kCudaSuccess;
  };
  driver.event_destroy = [](CudaEvent) { return kCudaSuccess; };
  driver.event_record = [](CudaEvent, CudaStream) {
    ++gpu->records;
    return gpu->record_result;
  };
  driver.event_query = [](CudaEvent) { return gpu->is_behind ? kCudaNotReady : kCudaSuccess; };
  driver.event_elapsed_time = [](float* milliseconds, CudaEvent, CudaEvent) {
    *milliseconds = gpu->elapsed_ms;
    return kCudaSuccess;
  };
  driver.stream_is_capturing = [](CudaStream, int* status) {
    *status = gpu->is_capturing ? kCudaNotCapturing + 1 : kCudaNotCapturing;
    return kCudaSuccess;
  };
}

FakeGpu::~FakeGpu() { gpu = nullptr; }

Process::Process(TimingMode timing, bool has_gpu)
    : instruments(segment.segment(), clock, timing, has_gpu ? &gpu.driver : nullptr, kPid,
                  kProcessTag, Sampler::kTimedPerSecond),
      table(instruments) {
  clock.StandAt(kBeginNs);
  context = AddCommunicator();
}

uint64_t Process::AddCommunicator(uint64_t comm_id) {
  return table.Add({comm_id, "test", 0, 8, 1, "", "", "", 0, 7, 0}, true);
}

uint64_t Process::Ignored(IgnoredReason reason) {
  return segment.segment().header().ignored[static_cast<int>(reason)].load();
}

}  // namespace nccl_pulse
