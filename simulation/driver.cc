// libcuda.so.1 of the simulated GPU, as far as the plugin calls it: events on the streams of
// stream.h. Forbidden calls during a capture (recording an event into it) invalidate it, so that
// the program fails. A query from a thread that has not relaxed its capture mode always fails,
// because it would invalidate captures of other threads.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "simulation/stream.h"

namespace nccl_pulse::simulation {
namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidHandle = 400;
constexpr int kNotReady = 600;
constexpr int kCaptureUnsupported = 900;
constexpr unsigned kDisableTiming = 2;
constexpr int kModeGlobal = 0;
constexpr int kModeRelaxed = 2;

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

struct Event {
  bool timing = false;
  std::mutex mutex;  // guards the members below
  std::shared_ptr<Timeline> timeline;
  uint64_t kernels = 0;  // number of kernels before the event
  uint64_t recorded_ns = 0;

  // Returns the completion time; 0: not complete.
  uint64_t CompleteNs() {
    const uint64_t end_ns = EndNs();
    return end_ns <= NowNs() ? end_ns : 0;
  }

 private:
  // Returns the end time; 0: not known.
  uint64_t EndNs() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (timeline == nullptr) return 1;  // an event never recorded is complete, as in CUDA
    const uint64_t end_ns = timeline->EndNs(kernels);
    return end_ns == 0 || timeline->is_computed() ? end_ns : std::max(end_ns, recorded_ns);
  }
};

// The driver's list of its process' events. The plugin keeps its own in memory from the kernel,
// which a leak checker does not search.
class Events {
 public:
  void Keep(std::unique_ptr<Event> event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Event* const key = event.get();
    events_.emplace(key, std::move(event));
  }
  void Destroy(Event* event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.erase(event);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Event*, std::unique_ptr<Event>> events_;
};
Events& AllEvents() {
  static auto* const kEvents = new Events;  // not destroyed: threads may still use them at the end
  return *kEvents;
}

thread_local int t_capture_mode = kModeGlobal;
int g_context;  // the only one; only its address is used
// Set before the plugin calls; -1: a job that numbers no GPUs.
int g_device = -1;

}  // namespace

}  // namespace nccl_pulse::simulation

using nccl_pulse::simulation::Event;
using nccl_pulse::simulation::Stream;

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
extern "C" {

void pulseSimulatedDevice(int number) { nccl_pulse::simulation::g_device = number; }
int pulseSimulatedDeviceIndex() { return nccl_pulse::simulation::g_device; }

int cuCtxGetCurrent(void** context) {
  *context = &nccl_pulse::simulation::g_context;
  return nccl_pulse::simulation::kSuccess;
}
int cuCtxSetCurrent(void*) { return nccl_pulse::simulation::kSuccess; }
int cuCtxGetId(void*, unsigned long long* id) {
  *id = 1;
  return nccl_pulse::simulation::kSuccess;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return nccl_pulse::simulation::kSuccess;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int) {
  std::memset(uuid, 0, 16);
  uuid[15] = static_cast<unsigned char>(std::max(nccl_pulse::simulation::g_device, 0));
  return nccl_pulse::simulation::kSuccess;
}
int cuDeviceGetPCIBusId(char* text, int length, int) {
  std::snprintf(text, static_cast<size_t>(length), "0000:00:%02x.0",
                static_cast<unsigned>(std::max(nccl_pulse::simulation::g_device, 0)));
  return nccl_pulse::simulation::kSuccess;
}

int cuEventCreate(void** event, unsigned flags) {
  auto made = std::make_unique<Event>();
  made->timing = (flags & nccl_pulse::simulation::kDisableTiming) == 0;
  *event = made.get();
  nccl_pulse::simulation::AllEvents().Keep(std::move(made));
  return nccl_pulse::simulation::kSuccess;
}
int cuEventDestroy_v2(void* event) {
  nccl_pulse::simulation::AllEvents().Destroy(static_cast<Event*>(event));
  return nccl_pulse::simulation::kSuccess;
}
int cuEventRecord(void* event, void* stream) {
  auto* on = static_cast<Stream*>(stream);
  if (on->is_capturing) {
    on->is_invalidated = true;
    return nccl_pulse::simulation::kCaptureUnsupported;
  }
  auto* recorded = static_cast<Event*>(event);
  const std::lock_guard<std::mutex> lock(recorded->mutex);
  recorded->timeline = on->timeline;
  recorded->kernels = on->timeline->enqueued();
  recorded->recorded_ns = nccl_pulse::simulation::NowNs();
  return nccl_pulse::simulation::kSuccess;
}
int cuEventQuery(void* event) {
  if (nccl_pulse::simulation::t_capture_mode != nccl_pulse::simulation::kModeRelaxed) {
    return nccl_pulse::simulation::kCaptureUnsupported;
  }
  return static_cast<Event*>(event)->CompleteNs() != 0 ? nccl_pulse::simulation::kSuccess
                                                       : nccl_pulse::simulation::kNotReady;
}
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  auto* first = static_cast<Event*>(begin);
  auto* second = static_cast<Event*>(end);
  if (!first->timing || !second->timing) return nccl_pulse::simulation::kInvalidHandle;
  const uint64_t begin_ns = first->CompleteNs();
  const uint64_t end_ns = second->CompleteNs();
  if (begin_ns == 0 || end_ns == 0) return nccl_pulse::simulation::kNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(end_ns - begin_ns) * 1e-6);
  return nccl_pulse::simulation::kSuccess;
}
int cuStreamIsCapturing(void* stream, int* status) {
  *status = static_cast<Stream*>(stream)->is_capturing ? 1 : 0;
  return nccl_pulse::simulation::kSuccess;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, nccl_pulse::simulation::t_capture_mode);
  return nccl_pulse::simulation::kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
