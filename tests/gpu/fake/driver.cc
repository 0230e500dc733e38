// libcuda.so.1 of the stand-in, as far as the plugin calls it: events on the streams of cuda.cc,
// whose kernels end when their data has been exchanged. What must never happen to a capture (an
// event recorded into it) invalidates it, so that the program fails. A query from a thread that has
// not relaxed its capture mode, which would invalidate captures of other threads, fails always.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/gpu/fake/cuda.h"

namespace nccl_pulse::fake {
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
  bool timing;
  std::mutex mutex;  // guards what follows
  std::shared_ptr<Timeline> timeline;
  uint64_t kernels = 0;  // stands behind so many
  uint64_t recorded_ns = 0;

  // 0: not complete.
  uint64_t CompleteNs() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (timeline == nullptr) return 1;  // as the driver: not recorded is complete
    const uint64_t end_ns = timeline->EndNs(kernels);
    return end_ns == 0 ? 0 : std::max(end_ns, recorded_ns);
  }
};

thread_local int t_capture_mode = kModeGlobal;
int g_context;  // the only one: its address

}  // namespace

// ---- kernels of a stream ------------------------------------------------------------------------

void Timeline::KernelEnqueued() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++enqueued_;
}

void Timeline::KernelEnded() {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_ns_.push_back(NowNs());
}

uint64_t Timeline::enqueued() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return enqueued_;
}

uint64_t Timeline::EndNs(uint64_t kernels) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kernels == 0) return 1;
  return kernels <= end_ns_.size() ? end_ns_[kernels - 1] : 0;
}

}  // namespace nccl_pulse::fake

using nccl_pulse::fake::Event;
using nccl_pulse::fake::Stream;

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
extern "C" {

int cuCtxGetCurrent(void** context) {
  *context = &nccl_pulse::fake::g_context;
  return nccl_pulse::fake::kSuccess;
}
int cuCtxSetCurrent(void*) { return nccl_pulse::fake::kSuccess; }
int cuCtxGetId(void*, unsigned long long* id) {
  *id = 1;
  return nccl_pulse::fake::kSuccess;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return nccl_pulse::fake::kSuccess;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int) {
  std::memset(uuid, 0, 16);
  return nccl_pulse::fake::kSuccess;
}
int cuDeviceGetPCIBusId(char* text, int length, int) {
  std::snprintf(text, static_cast<size_t>(length), "0000:00:00.0");
  return nccl_pulse::fake::kSuccess;
}

int cuEventCreate(void** event, unsigned flags) {
  auto* made = new Event;
  made->timing = (flags & nccl_pulse::fake::kDisableTiming) == 0;
  *event = made;
  return nccl_pulse::fake::kSuccess;
}
int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return nccl_pulse::fake::kSuccess;
}
int cuEventRecord(void* event, void* stream) {
  auto* on = static_cast<Stream*>(stream);
  if (on->capture != nullptr) {
    on->invalidated = true;
    return nccl_pulse::fake::kCaptureUnsupported;
  }
  auto* recorded = static_cast<Event*>(event);
  const std::lock_guard<std::mutex> lock(recorded->mutex);
  recorded->timeline = on->timeline;
  recorded->kernels = on->timeline->enqueued();
  recorded->recorded_ns = nccl_pulse::fake::NowNs();
  return nccl_pulse::fake::kSuccess;
}
int cuEventQuery(void* event) {
  if (nccl_pulse::fake::t_capture_mode != nccl_pulse::fake::kModeRelaxed) {
    return nccl_pulse::fake::kCaptureUnsupported;
  }
  return static_cast<Event*>(event)->CompleteNs() != 0 ? nccl_pulse::fake::kSuccess
                                                       : nccl_pulse::fake::kNotReady;
}
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  auto* first = static_cast<Event*>(begin);
  auto* second = static_cast<Event*>(end);
  if (!first->timing || !second->timing) return nccl_pulse::fake::kInvalidHandle;
  const uint64_t begin_ns = first->CompleteNs();
  const uint64_t end_ns = second->CompleteNs();
  if (begin_ns == 0 || end_ns == 0) return nccl_pulse::fake::kNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(end_ns - begin_ns) * 1e-6);
  return nccl_pulse::fake::kSuccess;
}
int cuStreamIsCapturing(void* stream, int* status) {
  *status = static_cast<Stream*>(stream)->capture != nullptr ? 1 : 0;
  return nccl_pulse::fake::kSuccess;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, nccl_pulse::fake::t_capture_mode);
  return nccl_pulse::fake::kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
