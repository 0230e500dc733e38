#include "tests/plugin/fake_cuda.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace nccl_pulse {
namespace {

constexpr int kSuccess = 0;
constexpr int kNotReady = 600;
constexpr unsigned kDisableTiming = 2;
constexpr int kRelaxed = 2;

// When something on the GPU is done.
using Completion = std::shared_ptr<std::optional<uint64_t>>;
Completion NewCompletion() { return std::make_shared<std::optional<uint64_t>>(); }

struct StreamState;
struct ContextState {
  int device;
  uint64_t id;
  bool destroyed = false;
  StreamState* default_streams[2] = {};  // legacy, per-thread; null until used
};

struct EventState {
  ContextState* context;
  bool timing;
  bool foreign;
  bool destroyed = false;
  Completion done{};  // null: never recorded
};

struct Item {
  uint64_t enqueued_ns;
  uint64_t duration_ns;
  Completion after;  // of another stream; may be null
  Completion done;
};

struct UserObject {
  void* argument;
  void (*destroy)(void*);
  unsigned references;
};

// A place in the host's memory that a stamp writes, as the plugin declares it.
struct PlaceState {
  uint64_t passages;
  uint64_t gpu_ns;
};

// The module of stamps as one context has it loaded.
struct ModuleState {
  ContextState* context;
  bool is_on_gpu = false;
  std::map<uint32_t, uint64_t> passages{};
};

struct GraphState {
  struct Node {
    ModuleState* stamp;  // null: another kernel
    PlaceState* place;
    uint32_t number;
  };
  std::vector<std::unique_ptr<Node>> nodes;  // in the order in which they run
  size_t roots = 1;                          // so many of the first stand side by side
  std::vector<UserObject*> objects;

  void Add(const Node& node) { nodes.push_back(std::make_unique<Node>(node)); }
};

struct StreamState {
  ContextState* context;
  std::deque<Item> queue;
  uint64_t last_end_ns = 0;
  Completion last = nullptr;
  bool capturing = false;
  bool invalidated = false;
  uint64_t capture_id = 0;
  GraphState* graph = nullptr;
};

thread_local ContextState* current_context = nullptr;
thread_local int capture_mode = 0;  // global
thread_local int callback_depth = 0;

class Simulation final : public FakeCuda {
 public:
  // ---- the GPU ----

  void Advance(uint64_t ns) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_ns_ += ns;
    Run();
  }

  Context CreateContext(int device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    contexts_.push_back(std::make_unique<ContextState>(ContextState{device, next_id_++}));
    return contexts_.back().get();
  }
  void MakeCurrent(Context context) override {
    current_context = static_cast<ContextState*>(context);
  }
  void DestroyContext(Context context) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    static_cast<ContextState*>(context)->destroyed = true;
    ForgetEvents(static_cast<ContextState*>(context));
  }
  void ResetContext(Context context) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ForgetEvents(static_cast<ContextState*>(context));
    static_cast<ContextState*>(context)->id = next_id_++;
  }

  Stream CreateStream(Context context) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.push_back(std::make_unique<StreamState>());
    streams_.back()->context = static_cast<ContextState*>(context);
    live_streams_.insert(streams_.back().get());
    return streams_.back().get();
  }
  void DestroyStream(Stream stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    live_streams_.erase(stream);
  }

  void Launch(Stream stream, uint64_t duration_ns) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    StreamState& state = *Resolve(stream);
    if (!state.capturing) {
      Enqueue(state, duration_ns, nullptr);
    } else {
      state.graph->Add({nullptr, nullptr, 0});
    }
  }
  void Wait(Stream stream, Stream other) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const StreamState& source = *Resolve(other);
    if (stream == other || source.last == nullptr) return;
    Enqueue(*Resolve(stream), 0, source.last);
  }
  void Release(Stream stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Item& item : static_cast<StreamState*>(stream)->queue) {
      if (item.duration_ns != kForever) continue;
      // From the start of time to now, whenever it began: it ends now.
      item.enqueued_ns = now_ns_;
      item.duration_ns = 0;
      break;
    }
    Run();
  }

  void BeginCapture(Stream stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto* state = static_cast<StreamState*>(stream);
    state->capturing = true;
    state->invalidated = false;
    state->capture_id = next_capture_++;
    graphs_.push_back(std::make_unique<GraphState>());
    state->graph = graphs_.back().get();
  }
  bool EndCapture(Stream stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    static_cast<StreamState*>(stream)->capturing = false;
    return !static_cast<StreamState*>(stream)->invalidated;
  }

  Graph CapturedGraph(Stream stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<StreamState*>(stream)->graph;
  }
  std::string Nodes(Graph graph) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string nodes;
    for (const auto& node : static_cast<GraphState*>(graph)->nodes) {
      nodes.push_back(node->stamp == nullptr ? 'k' : 's');
    }
    return nodes;
  }
  void SetRoots(Stream stream, size_t roots) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    static_cast<StreamState*>(stream)->graph->roots = roots;
  }
  void Replay(Graph graph, uint64_t first, uint64_t count) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto& nodes = static_cast<GraphState*>(graph)->nodes;
    for (uint64_t i = first; i < nodes.size() && i - first < count; ++i) {
      const GraphState::Node& node = *nodes[i];
      if (node.stamp == nullptr) continue;
      // Like the GPU's store: the count is there when the time is.
      __atomic_store_n(&node.place->gpu_ns, now_ns_ + 1, __ATOMIC_RELEASE);
      __atomic_store_n(&node.place->passages, ++node.stamp->passages[node.number],
                       __ATOMIC_RELEASE);
    }
  }
  void DestroyGraph(Graph graph) override {
    std::vector<UserObject*> ended;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      auto* state = static_cast<GraphState*>(graph);
      for (UserObject* object : state->objects) {
        if (--object->references == 0) ended.push_back(object);
      }
      state->objects.clear();
      state->nodes.clear();
    }
    for (UserObject* object : ended) object->destroy(object->argument);
  }

  void* CreateEvent(Context context) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return NewEvent(static_cast<ContextState*>(context), true, true);
  }

  // ---- failures ----

  void Fail(const std::string& function, int error, Context context) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_.push_back({function, error, static_cast<ContextState*>(context)});
  }
  void StopFailing() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_.clear();
  }
  void Block(const std::string& function) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocked_function_ = function;
  }
  bool IsBlocked() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return blocked_threads_ > 0;
  }
  void Unblock() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    blocked_function_.clear();
    unblocked_.notify_all();
  }

  void EndAtExit() override;
  void End() { ended_.store(true, std::memory_order_release); }

  void EnterCallback() override { ++callback_depth; }
  void LeaveCallback() override { --callback_depth; }

  // ---- what the plugin did ----

  uint64_t Calls(const std::string& function) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!function.empty()) return calls_[function];
    uint64_t sum = 0;
    for (const auto& [name, calls] : calls_) sum += calls;
    return sum;
  }
  uint64_t RecordsInCallbacks() override { return Read(records_in_callbacks_); }
  uint64_t ForbiddenInCallbacks() override { return Read(forbidden_in_callbacks_); }
  uint64_t RecordsIntoCaptures() override { return Read(records_into_captures_); }
  uint64_t WrongKernelLaunches() override { return Read(wrong_kernel_launches_); }
  uint64_t UsesOfDestroyedEvents() override { return Read(uses_of_destroyed_); }
  uint64_t ForeignEventsDestroyed() override { return Read(foreign_destroyed_); }
  uint64_t EventsCreated() override { return Read(events_created_); }
  int64_t EventsAlive() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    int64_t alive = 0;
    for (const auto& event : events_) {
      if (!event->foreign && !event->destroyed) ++alive;
    }
    return alive;
  }

  // ---- the driver's functions ----

  int GetCurrent(void** context) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuCtxGetCurrent", current_context, &lock)) return error;
    *context = current_context;
    return kSuccess;
  }
  int SetCurrent(void* context) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto* state = static_cast<ContextState*>(context);
    if (const int error = Enter("cuCtxSetCurrent", state, &lock)) return error;
    current_context = state;
    return kSuccess;
  }
  int GetId(void* context, unsigned long long* id) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto* state = static_cast<ContextState*>(context);
    if (state == nullptr) state = current_context;
    if (const int error = Enter("cuCtxGetId", state, &lock)) return error;
    *id = state->id;
    return kSuccess;
  }
  int GetDevice(int* device) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuCtxGetDevice", current_context, &lock)) return error;
    if (current_context == nullptr) return kInvalidContext;
    *device = current_context->device;
    return kSuccess;
  }
  int Identify(const char* function) {
    std::unique_lock<std::mutex> lock(mutex_);
    return Enter(function, nullptr, &lock);
  }

  int EventCreate(void** event, unsigned flags) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuEventCreate", current_context, &lock)) return error;
    if (current_context == nullptr) return kInvalidContext;
    *event = NewEvent(current_context, (flags & kDisableTiming) == 0, false);
    ++events_created_;
    return kSuccess;
  }
  int EventDestroy(void* event) {
    std::unique_lock<std::mutex> lock(mutex_);
    EventState* state = nullptr;
    if (const int error = EnterEvent("cuEventDestroy_v2", event, &state, &lock)) return error;
    if (state->foreign) ++foreign_destroyed_;
    state->destroyed = true;
    return kSuccess;
  }
  int EventRecord(void* event, void* stream) {
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
  int EventQuery(void* event) {
    std::unique_lock<std::mutex> lock(mutex_);
    EventState* state = nullptr;
    if (const int error = EnterEvent("cuEventQuery", event, &state, &lock)) return error;
    if (InvalidateCapturesUnlessRelaxed()) return kCaptureUnsupported;
    if (state->done == nullptr) return kSuccess;  // as the driver: not recorded is complete
    return IsDone(state->done) ? kSuccess : kNotReady;
  }
  int ElapsedTime(float* milliseconds, void* begin, void* end) {
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
  int IsCapturing(void* stream, int* status) {
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
  int CaptureInfo(void* stream, int* status, unsigned long long* id, void** graph) {
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
  int ModuleLoadData(void** module, const void* image) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuModuleLoadData", current_context, &lock)) return error;
    if (current_context == nullptr) return kInvalidContext;
    InvalidateCapturesUnlessRelaxed();
    if (strstr(static_cast<const char*>(image), ".entry nccl_pulse_stamp(") == nullptr) return 218;
    modules_.push_back(std::make_unique<ModuleState>(ModuleState{current_context}));
    *module = modules_.back().get();
    return kSuccess;
  }
  int ModuleGetFunction(void** function, void* module, const char* name) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuModuleGetFunction", current_context, &lock)) return error;
    *function = module;  // it has one
    return strcmp(name, "nccl_pulse_stamp") == 0 ? kSuccess : 500;
  }
  int FuncGetAttribute(int* value, void* function) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuFuncGetAttribute", current_context, &lock)) return error;
    InvalidateCapturesUnlessRelaxed();
    static_cast<ModuleState*>(function)->is_on_gpu = true;
    *value = 8;
    return kSuccess;
  }
  int HostRegister() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuMemHostRegister_v2", current_context, &lock)) return error;
    InvalidateCapturesUnlessRelaxed();
    return kSuccess;
  }
  int LaunchKernel(void* function, void* stream, void** parameters) {
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
  int GraphGetRootNodes(void* graph, void** nodes, size_t* count) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuGraphGetRootNodes", nullptr, &lock)) return error;
    const auto* state = static_cast<GraphState*>(graph);
    const size_t roots = std::min(state->roots, state->nodes.size());
    for (size_t i = 0; i < *count; ++i) nodes[i] = i < roots ? state->nodes[i].get() : nullptr;
    *count = std::min(*count, roots);
    return kSuccess;
  }
  // Beside all that is there, until it is given an edge.
  int GraphAddKernelNode(void** node, void* graph, size_t dependencies, void* function,
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
  // From the node that was added last to all roots.
  int GraphAddDependencies(void* graph, void* const* from, void* const* to, size_t count) {
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
  int UserObjectCreate(void** object, void* argument, void (*destroy)(void*), unsigned references) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuUserObjectCreate", nullptr, &lock)) return error;
    objects_.push_back(std::make_unique<UserObject>(UserObject{argument, destroy, references}));
    *object = objects_.back().get();
    return kSuccess;
  }
  int UserObjectRelease(void* object, unsigned references) {
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
  int GraphRetainUserObject(void* graph, void* object) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuGraphRetainUserObject", nullptr, &lock)) return error;
    static_cast<GraphState*>(graph)->objects.push_back(static_cast<UserObject*>(object));
    return kSuccess;
  }
  int ExchangeCaptureMode(int* mode) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuThreadExchangeStreamCaptureMode", nullptr, &lock)) return error;
    std::swap(*mode, capture_mode);
    return kSuccess;
  }

 private:
  // What a call that no capture allows does to those that run. True: there were some.
  bool InvalidateCapturesUnlessRelaxed() {
    bool invalidated = false;
    if (capture_mode == kRelaxed) return false;
    for (const auto& stream : streams_) {
      if (stream->capturing) invalidated = stream->invalidated = true;
    }
    return invalidated;
  }

  struct Failure {
    std::string function;
    int error;
    ContextState* context;
  };

  uint64_t Read(const uint64_t& counter) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counter;
  }

  // Null: not a stream.
  StreamState* ResolveLive(void* stream) {
    const bool dead = reinterpret_cast<uintptr_t>(stream) > 2 && live_streams_.count(stream) == 0;
    return dead ? nullptr : Resolve(stream);
  }
  // Also one that was destroyed: its work goes on.
  StreamState* Resolve(void* stream) {
    const auto handle = reinterpret_cast<uintptr_t>(stream);
    if (handle > 2) return static_cast<StreamState*>(stream);
    if (current_context == nullptr) return nullptr;
    StreamState*& state = current_context->default_streams[handle == 2 ? 1 : 0];
    if (state == nullptr) {
      streams_.push_back(std::make_unique<StreamState>());
      state = streams_.back().get();
      state->context = current_context;
    }
    return state;
  }

  // Stamps are launched into captures alone, see LaunchKernel.
  static bool IsAllowedInCallback(const char* function) {
    const auto is = [function](const char* name) { return strcmp(function, name) == 0; };
    return is("cuStreamIsCapturing") || is("cuStreamGetCaptureInfo_v2") || is("cuCtxGetCurrent") ||
           is("cuCtxGetId") || is("cuLaunchKernel") || is("cuUserObjectCreate") ||
           is("cuUserObjectRelease") || is("cuGraphRetainUserObject") ||
           is("cuGraphGetRootNodes") || is("cuGraphAddKernelNode_v2") ||
           is("cuGraphAddDependencies");
  }

  // What every function does first.
  int Enter(const char* function, const ContextState* context, std::unique_lock<std::mutex>* lock) {
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

  // An address of an event that lives, or lived.
  int CheckEvent(void* event, EventState** state) {
    if (event == nullptr || known_events_.count(event) == 0) return kInvalidHandle;
    *state = static_cast<EventState*>(event);
    if ((*state)->destroyed) {
      ++uses_of_destroyed_;
      return kInvalidHandle;
    }
    return kSuccess;
  }
  int EnterEvent(const char* function, void* event, EventState** state,
                 std::unique_lock<std::mutex>* lock) {
    const bool known = event != nullptr && known_events_.count(event) != 0;
    const ContextState* context = known ? static_cast<EventState*>(event)->context : nullptr;
    if (const int error = Enter(function, context, lock)) return error;
    return CheckEvent(event, state);
  }

  void* NewEvent(ContextState* context, bool timing, bool foreign) {
    // Like the driver, hands out a freed address again, so that a stale one may name another's.
    EventState* event = nullptr;
    if (foreign && !freed_.empty()) {
      event = freed_.back();
      freed_.pop_back();
    } else {
      events_.push_back(std::make_unique<EventState>());
      event = events_.back().get();
      known_events_.insert(event);
    }
    *event = EventState{context, timing, foreign};
    return event;
  }
  // Those of a context that has gone.
  void ForgetEvents(ContextState* context) {
    for (const auto& event : events_) {
      if (event->context != context || event->destroyed) continue;
      event->destroyed = true;
      freed_.push_back(event.get());
    }
  }

  Completion Enqueue(StreamState& stream, uint64_t duration_ns, Completion after) {
    Completion done = NewCompletion();
    stream.queue.push_back({now_ns_, duration_ns, std::move(after), done});
    stream.last = done;
    Run();
    return done;
  }
  bool IsDone(const Completion& completion) const {
    return completion->has_value() && **completion <= now_ns_;
  }
  // Until nothing more happens by now.
  void Run() {
    bool again = true;
    while (again) {
      again = false;
      for (const auto& stream : streams_) {
        while (!stream->queue.empty()) {
          const Item& item = stream->queue.front();
          if (item.after != nullptr && !item.after->has_value()) break;
          uint64_t start_ns = std::max(stream->last_end_ns, item.enqueued_ns);
          if (item.after != nullptr) start_ns = std::max(start_ns, **item.after);
          if (item.duration_ns == kForever || start_ns + item.duration_ns > now_ns_) break;
          stream->last_end_ns = start_ns + item.duration_ns;
          *item.done = stream->last_end_ns;
          stream->queue.pop_front();
          again = true;
        }
      }
    }
  }

  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::condition_variable unblocked_;
  // All of it under the mutex.
  uint64_t now_ns_ = 0;
  uint64_t next_id_ = 1;
  std::vector<std::unique_ptr<ContextState>> contexts_;
  std::vector<std::unique_ptr<StreamState>> streams_;
  std::vector<std::unique_ptr<EventState>> events_;
  std::vector<EventState*> freed_;
  std::set<void*> live_streams_;
  std::set<void*> known_events_;
  std::vector<Failure> failures_;
  std::string blocked_function_;
  int blocked_threads_ = 0;
  std::map<std::string, uint64_t> calls_;
  uint64_t records_in_callbacks_ = 0;
  uint64_t forbidden_in_callbacks_ = 0;
  uint64_t records_into_captures_ = 0;
  uint64_t uses_of_destroyed_ = 0;
  uint64_t foreign_destroyed_ = 0;
  uint64_t events_created_ = 0;
  uint64_t wrong_kernel_launches_ = 0;
  uint64_t next_capture_ = 1;
  std::vector<std::unique_ptr<GraphState>> graphs_;
  std::vector<std::unique_ptr<ModuleState>> modules_;
  std::vector<std::unique_ptr<UserObject>> objects_;
};

Simulation& Driver() {
  static auto* simulation = new Simulation;  // never destroyed: threads may poll at exit
  return *simulation;
}

void Simulation::EndAtExit() {
  atexit([] {
    Driver().End();
    // Not nanosleep, which tests replace: many times a poller's pause.
    poll(nullptr, 0, 100);
  });
}

}  // namespace
}  // namespace nccl_pulse

using nccl_pulse::Driver;

// NOLINTBEGIN(readability-identifier-naming): the driver's names.
extern "C" {

nccl_pulse::FakeCuda* NcclPulseGetFakeCuda() { return &Driver(); }

int cuCtxGetCurrent(void** context) { return Driver().GetCurrent(context); }
int cuCtxSetCurrent(void* context) { return Driver().SetCurrent(context); }
int cuCtxGetId(void* context, unsigned long long* id) { return Driver().GetId(context, id); }
int cuCtxGetDevice(int* device) { return Driver().GetDevice(device); }
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  memset(uuid, device, 16);
  return Driver().Identify("cuDeviceGetUuid_v2");
}
int cuDeviceGetPCIBusId(char* text, int length, int device) {
  snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return Driver().Identify("cuDeviceGetPCIBusId");
}
int cuEventCreate(void** event, unsigned flags) { return Driver().EventCreate(event, flags); }
int cuEventDestroy_v2(void* event) { return Driver().EventDestroy(event); }
int cuEventRecord(void* event, void* stream) { return Driver().EventRecord(event, stream); }
int cuEventQuery(void* event) { return Driver().EventQuery(event); }
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return Driver().ElapsedTime(milliseconds, begin, end);
}
int cuStreamIsCapturing(void* stream, int* status) { return Driver().IsCapturing(stream, status); }
int cuStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id, void** graph,
                              const void***, size_t*) {
  return Driver().CaptureInfo(stream, status, id, graph);
}
int cuModuleLoadData(void** module, const void* image) {
  return Driver().ModuleLoadData(module, image);
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return Driver().ModuleGetFunction(function, module, name);
}
int cuFuncGetAttribute(int* value, int, void* function) {
  return Driver().FuncGetAttribute(value, function);
}
int cuMemHostRegister_v2(void*, size_t, unsigned) { return Driver().HostRegister(); }
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* memory, unsigned) {
  *address = reinterpret_cast<uintptr_t>(memory);
  return Driver().Identify("cuMemHostGetDevicePointer_v2");
}
int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void* stream, void** parameters, void**) {
  return Driver().LaunchKernel(function, stream, parameters);
}
int cuGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
  return Driver().GraphGetRootNodes(graph, nodes, count);
}
// CUDA_KERNEL_NODE_PARAMS_v2 as far as it is looked at.
struct KernelNodeParams {
  void* function;
  unsigned sizes[7];
  void** parameters;
};
int cuGraphAddKernelNode_v2(void** node, void* graph, void* const*, size_t dependencies,
                            const KernelNodeParams* kernel) {
  return Driver().GraphAddKernelNode(node, graph, dependencies, kernel->function,
                                     kernel->parameters);
}
int cuGraphAddDependencies(void* graph, void* const* from, void* const* to, size_t count) {
  return Driver().GraphAddDependencies(graph, from, to, count);
}
int cuUserObjectCreate(void** object, void* argument, void (*destroy)(void*), unsigned references,
                       unsigned) {
  return Driver().UserObjectCreate(object, argument, destroy, references);
}
int cuUserObjectRelease(void* object, unsigned references) {
  return Driver().UserObjectRelease(object, references);
}
int cuGraphRetainUserObject(void* graph, void* object, unsigned, unsigned) {
  return Driver().GraphRetainUserObject(graph, object);
}
int cuThreadExchangeStreamCaptureMode(int* mode) { return Driver().ExchangeCaptureMode(mode); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
