// The driver's functions for captures, graphs and the kernels in them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/plugin/fake_cuda_simulation.h"

namespace nccl_pulse::fake_cuda {

int Simulation::IsCapturing(void* stream, int* status) {
  std::unique_lock<std::mutex> lock(mutex_);
  const StreamState* state = ResolveLive(stream);
  const int error =
      Enter("cuStreamIsCapturing", state != nullptr ? state->context : nullptr, &lock);
  if (error != kSuccess) return error;
  if (state == nullptr) return kInvalidHandle;
  const auto others_capture = [&](const std::unique_ptr<StreamState>& other) {
    return other->capturing && other->context == state->context;
  };
  if (reinterpret_cast<uintptr_t>(stream) <= 1 &&
      std::any_of(streams_.begin(), streams_.end(), others_capture)) {
    return kCaptureImplicit;
  }
  *status = !state->capturing ? 0 : state->invalidated ? 2 : 1;
  return kSuccess;
}

int Simulation::CaptureInfo(void* stream, int* status, unsigned long long* id, void** graph) {
  std::unique_lock<std::mutex> lock(mutex_);
  const StreamState* state = ResolveLive(stream);
  const int error =
      Enter("cuStreamGetCaptureInfo_v2", state != nullptr ? state->context : nullptr, &lock);
  if (error != kSuccess) return error;
  if (state == nullptr) return kInvalidHandle;
  *status = !state->capturing ? 0 : state->invalidated ? 2 : 1;
  if (*status != 1) return kSuccess;
  *id = state->capture_id;
  *graph = state->graph;
  return kSuccess;
}

int Simulation::ModuleLoadData(void** module, const void* image) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuModuleLoadData", current_context, &lock)) return error;
  if (current_context == nullptr) return kInvalidContext;
  InvalidateCapturesUnlessRelaxed();
  if (strstr(static_cast<const char*>(image), ".entry nccl_pulse_stamp(") == nullptr) return 218;
  modules_.push_back(std::make_unique<ModuleState>(ModuleState{current_context}));
  *module = modules_.back().get();
  return kSuccess;
}

int Simulation::ModuleGetFunction(void** function, void* module, const char* name) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuModuleGetFunction", current_context, &lock)) return error;
  *function = module;  // it has one
  return strcmp(name, "nccl_pulse_stamp") == 0 ? kSuccess : 500;
}

int Simulation::FuncGetAttribute(int* value, void* function) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuFuncGetAttribute", current_context, &lock)) return error;
  InvalidateCapturesUnlessRelaxed();
  static_cast<ModuleState*>(function)->is_on_gpu = true;
  *value = 8;
  return kSuccess;
}

int Simulation::HostRegister() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuMemHostRegister_v2", current_context, &lock)) return error;
  InvalidateCapturesUnlessRelaxed();
  return kSuccess;
}

int Simulation::LaunchKernel(void* function, void* stream, void** parameters) {
  std::unique_lock<std::mutex> lock(mutex_);
  StreamState* state = ResolveLive(stream);
  const int error = Enter("cuLaunchKernel", state != nullptr ? state->context : nullptr, &lock);
  if (error != kSuccess) return error;
  if (state == nullptr) return kInvalidHandle;
  auto* module = static_cast<ModuleState*>(function);
  if (!state->capturing || !module->is_on_gpu || module->context != current_context ||
      state->context != current_context) {
    ++wrong_kernel_launches_;
    return kInvalidHandle;
  }
  // The address is the host's.
  auto* place = reinterpret_cast<PlaceState*>(*static_cast<uint64_t*>(parameters[0]));
  state->graph->Add({module, place, *static_cast<uint32_t*>(parameters[1])});
  return kSuccess;
}

int Simulation::GraphGetRootNodes(void* graph, void** nodes, size_t* count) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuGraphGetRootNodes", nullptr, &lock)) return error;
  const auto* state = static_cast<GraphState*>(graph);
  const size_t roots = std::min(state->roots, state->nodes.size());
  for (size_t i = 0; i < *count; ++i) nodes[i] = i < roots ? state->nodes[i].get() : nullptr;
  *count = std::min(*count, roots);
  return kSuccess;
}

int Simulation::GraphAddKernelNode(void** node, void* graph, size_t dependencies, void* function,
                                   void** parameters) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuGraphAddKernelNode_v2", nullptr, &lock)) return error;
  auto* module = static_cast<ModuleState*>(function);
  if (dependencies != 0 || !module->is_on_gpu || module->context != current_context) {
    ++wrong_kernel_launches_;
    return kInvalidHandle;
  }
  auto* place = reinterpret_cast<PlaceState*>(*static_cast<uint64_t*>(parameters[0]));
  auto* state = static_cast<GraphState*>(graph);
  state->Add({module, place, *static_cast<uint32_t*>(parameters[1])});
  *node = state->nodes.back().get();
  return kSuccess;
}

int Simulation::GraphAddDependencies(void* graph, void* const* from, void* const* to,
                                     size_t count) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuGraphAddDependencies", nullptr, &lock)) return error;
  auto* state = static_cast<GraphState*>(graph);
  auto& nodes = state->nodes;
  bool is_right = count == state->roots;
  for (size_t i = 0; i < count && is_right; ++i) {
    is_right = from[i] == nodes.back().get() && to[i] == nodes[i].get();
  }
  if (!is_right) {
    ++wrong_kernel_launches_;
    return kInvalidHandle;
  }
  std::rotate(nodes.begin(), nodes.end() - 1, nodes.end());
  state->roots = 1;
  return kSuccess;
}

int Simulation::UserObjectCreate(void** object, void* argument, void (*destroy)(void*),
                                 unsigned references) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuUserObjectCreate", nullptr, &lock)) return error;
  objects_.push_back(std::make_unique<UserObject>(UserObject{argument, destroy, references}));
  *object = objects_.back().get();
  return kSuccess;
}

int Simulation::UserObjectRelease(void* object, unsigned references) {
  auto* state = static_cast<UserObject*>(object);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuUserObjectRelease", nullptr, &lock)) return error;
    state->references -= references;
    if (state->references != 0) return kSuccess;
  }
  state->destroy(state->argument);
  return kSuccess;
}

int Simulation::GraphRetainUserObject(void* graph, void* object) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuGraphRetainUserObject", nullptr, &lock)) return error;
  static_cast<GraphState*>(graph)->objects.push_back(static_cast<UserObject*>(object));
  return kSuccess;
}

int Simulation::ExchangeCaptureMode(int* mode) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Enter("cuThreadExchangeStreamCaptureMode", nullptr, &lock)) return error;
  std::swap(*mode, capture_mode);
  return kSuccess;
}

bool Simulation::InvalidateCapturesUnlessRelaxed() {
  bool invalidated = false;
  if (capture_mode == kRelaxed) return false;
  for (const auto& stream : streams_) {
    if (stream->capturing) invalidated = stream->invalidated = true;
  }
  return invalidated;
}

}  // namespace nccl_pulse::fake_cuda
