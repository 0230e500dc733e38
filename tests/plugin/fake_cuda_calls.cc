// The driver's functions, as the plugin calls them: contexts and events.
#include <unistd.h>

#include <cstring>

#include "tests/plugin/fake_cuda_simulation.h"

namespace nccl_pulse::fake_cuda {

int Simulation::GetCurrent(void** context) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuCtxGetCurrent", current_context, &lock)) return error;
  *context = current_context;
  return kSuccess;
}

int Simulation::SetCurrent(void* context) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto* state = static_cast<ContextState*>(context);
  if (const int error = Enter("cuCtxSetCurrent", state, &lock)) return error;
  current_context = state;
  return kSuccess;
}

int Simulation::GetId(void* context, unsigned long long* id) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto* state = static_cast<ContextState*>(context);
  if (state == nullptr) state = current_context;
  if (const int error = Enter("cuCtxGetId", state, &lock)) return error;
  *id = state->id;
  return kSuccess;
}

int Simulation::GetDevice(int* device) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuCtxGetDevice", current_context, &lock)) return error;
  if (current_context == nullptr) return kInvalidContext;
  *device = current_context->device;
  return kSuccess;
}

int Simulation::Identify(const char* function) {
  std::unique_lock<std::mutex> lock(mutex_);
  return Enter(function, nullptr, &lock);
}

int Simulation::EventCreate(void** event, unsigned flags) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuEventCreate", current_context, &lock)) return error;
  if (current_context == nullptr) return kInvalidContext;
  *event = NewEvent(current_context, (flags & kDisableTiming) == 0, false);
  ++events_created_;
  return kSuccess;
}

int Simulation::EventDestroy(void* event) {
  std::unique_lock<std::mutex> lock(mutex_);
  EventState* state = nullptr;
  if (const int error = EnterEvent("cuEventDestroy_v2", event, &state, &lock)) return error;
  if (state->foreign) ++foreign_destroyed_;
  state->destroyed = true;
  return kSuccess;
}

int Simulation::EventRecord(void* event, void* stream) {
  std::unique_lock<std::mutex> lock(mutex_);
  EventState* state = nullptr;
  if (const int error = EnterEvent("cuEventRecord", event, &state, &lock)) return error;
  StreamState* resolved = ResolveLive(stream);
  if (resolved == nullptr) return kInvalidHandle;
  StreamState& target = *resolved;
  if (target.context != state->context) return kInvalidHandle;
  if (target.capturing) {
    ++records_into_captures_;
    return kSuccess;
  }
  state->done = Enqueue(target, 0, nullptr);
  return kSuccess;
}

int Simulation::EventQuery(void* event) {
  std::unique_lock<std::mutex> lock(mutex_);
  EventState* state = nullptr;
  if (const int error = EnterEvent("cuEventQuery", event, &state, &lock)) return error;
  if (InvalidateCapturesUnlessRelaxed()) return kCaptureUnsupported;
  if (state->done == nullptr) return kSuccess;  // as the driver: not recorded is complete
  return IsDone(state->done) ? kSuccess : kNotReady;
}

int Simulation::ElapsedTime(float* milliseconds, void* begin, void* end) {
  std::unique_lock<std::mutex> lock(mutex_);
  EventState* first = nullptr;
  EventState* second = nullptr;
  if (const int error = EnterEvent("cuEventElapsedTime", begin, &first, &lock)) return error;
  if (const int error = CheckEvent(end, &second)) return error;
  if (first->done == nullptr || second->done == nullptr || !first->timing || !second->timing) {
    return kInvalidHandle;
  }
  if (!IsDone(first->done) || !IsDone(second->done)) return kNotReady;
  const auto ns = static_cast<int64_t>(**second->done) - static_cast<int64_t>(**first->done);
  *milliseconds = static_cast<float>(static_cast<double>(ns) * 1e-6);
  return kSuccess;
}

bool Simulation::IsAllowedInCallback(const char* function) {
  const auto is = [function](const char* name) { return strcmp(function, name) == 0; };
  return is("cuStreamIsCapturing") || is("cuStreamGetCaptureInfo_v2") || is("cuCtxGetCurrent") ||
         is("cuCtxGetId") || is("cuLaunchKernel") || is("cuUserObjectCreate") ||
         is("cuUserObjectRelease") || is("cuGraphRetainUserObject") || is("cuGraphGetRootNodes") ||
         is("cuGraphAddKernelNode_v2") || is("cuGraphAddDependencies") ||
         is("cuPointerGetAttribute") || is("cuMemGetAddressRange_v2") ||
         is("cuMemRetainAllocationHandle");
}

int Simulation::Enter(const char* function, const ContextState* context,
                      std::unique_lock<std::mutex>* lock) {
  if (ended_.load(std::memory_order_acquire)) _exit(kUsedAfterItsEnd);
  ++calls_[function];
  if (callback_depth > 0) {
    const bool records = strcmp(function, "cuEventRecord") == 0;
    if (records) ++records_in_callbacks_;
    if (!records && !IsAllowedInCallback(function)) ++forbidden_in_callbacks_;
  }
  if (blocked_function_ == function) {
    ++blocked_threads_;
    unblocked_.wait(*lock, [&] { return blocked_function_ != function; });
    --blocked_threads_;
  }
  for (const Failure& failure : failures_) {
    if ((failure.function.empty() || failure.function == function) &&
        (failure.context == nullptr || failure.context == context)) {
      return failure.error;
    }
  }
  return context != nullptr && context->destroyed ? kContextDestroyed : kSuccess;
}

int Simulation::CheckEvent(void* event, EventState** state) {
  if (event == nullptr || known_events_.count(event) == 0) return kInvalidHandle;
  *state = static_cast<EventState*>(event);
  if ((*state)->destroyed) {
    ++uses_of_destroyed_;
    return kInvalidHandle;
  }
  return kSuccess;
}

int Simulation::EnterEvent(const char* function, void* event, EventState** state,
                           std::unique_lock<std::mutex>* lock) {
  const bool known = event != nullptr && known_events_.count(event) != 0;
  const ContextState* context = known ? static_cast<EventState*>(event)->context : nullptr;
  if (const int error = Enter(function, context, lock)) return error;
  return CheckEvent(event, state);
}

}  // namespace nccl_pulse::fake_cuda
