// The minimum that a profiler plugin must do to know when each launch ends: it records an event
// behind each launch, and nothing else. No counter, no clock, no query. Any plugin that sees the
// end of each launch costs more than the floor plugin, and the floor plugin costs more than the
// empty plugin (empty_plugin.cc).
//
//   FLOOR_PLUGIN_ASKS=1   first queries whether the stream is in capture, as a usable plugin must
//
// Only for collective_overhead: without the query it would record into CUDA graphs. API v5 to v7.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "bench/plugin_parts.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"
#include "plugin/abi/profiler_v7.h"
#include "plugin/cuda/cuda_driver.h"

namespace {

namespace abi = nccl_pulse::abi;
using nccl_pulse::bench::IgnoreFinalize;
using nccl_pulse::bench::IgnoreState;

struct Communicator {
  nccl_pulse::CudaEvent event;
  nccl_pulse::CudaStream stream;  // of the current launch
  Communicator* next;             // the previously created one
};

const nccl_pulse::CudaDriver* driver = nullptr;
bool asks = false;
std::atomic<Communicator*> last{nullptr};

int Init(void** context, uint64_t /*comm_id*/, int* mask, const char* /*comm_name*/, int /*nnodes*/,
         int /*nranks*/, int /*rank*/, abi::DebugLogger /*logger*/) {
  *context = nullptr;
  *mask = nccl_pulse::bench::kRealMask;
  asks = std::getenv("FLOOR_PLUGIN_ASKS") != nullptr;
  driver = nccl_pulse::CudaDriver::Load();
  if (driver == nullptr) return abi::kSuccess;
  auto* communicator = new (std::nothrow) Communicator{};
  if (communicator != nullptr &&
      driver->event_create(&communicator->event, nccl_pulse::kCudaEventWithoutTiming) ==
          nccl_pulse::kCudaSuccess) {
    // Never freed; reachable for a leak checker.
    communicator->next = last.load();
    while (!last.compare_exchange_weak(communicator->next, communicator)) {
    }
    *context = communicator;
  }
  return abi::kSuccess;
}

template <typename Descriptor>
int Start(void* context, void** handle, Descriptor* descriptor) {
  *handle = nullptr;
  if (context == nullptr || descriptor->type != abi::kEventKernelLaunch) return abi::kSuccess;
  auto* communicator = static_cast<Communicator*>(context);
  communicator->stream = descriptor->kernelLaunch.stream;
  *handle = communicator;
  return abi::kSuccess;
}

int Stop(void* handle) {
  const auto* communicator = static_cast<const Communicator*>(handle);
  int capturing = nccl_pulse::kCudaNotCapturing;
  if (asks &&
      (driver->stream_is_capturing(communicator->stream, &capturing) != nccl_pulse::kCudaSuccess ||
       capturing != nccl_pulse::kCudaNotCapturing)) {
    return abi::kSuccess;
  }
  driver->event_record(communicator->event, communicator->stream);
  return abi::kSuccess;
}

}  // namespace

extern "C" {
__attribute__((visibility("default")))
abi::v5::Profiler ncclProfiler_v5 = {"Floor", Init, Start, Stop, IgnoreState, IgnoreFinalize};
__attribute__((visibility("default")))
abi::v6::Profiler ncclProfiler_v6 = {"Floor", Init, Start, Stop, IgnoreState, IgnoreFinalize};
abi::v7::Profiler ncclProfiler_v7 = {"Floor", Init, Start, Stop, IgnoreState, IgnoreFinalize};
}  // extern "C"
