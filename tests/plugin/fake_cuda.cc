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

struct StreamState {
  ContextState* context;
  std::deque<Item> queue;
  uint64_t last_end_ns = 0;
  Completion last = nullptr;
  bool capturing = false;
  bool invalidated = false;
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
    if (!state.capturing) Enqueue(state, duration_ns, nullptr);
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
    static_cast<StreamState*>(stream)->capturing = true;
    static_cast<StreamState*>(stream)->invalidated = false;
  }
  bool EndCapture(Stream stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    static_cast<StreamState*>(stream)->capturing = false;
    return !static_cast<StreamState*>(stream)->invalidated;
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
    if (capture_mode != kRelaxed) {
      bool invalidated = false;
      for (const auto& stream : streams_) {
        if (stream->capturing) invalidated = stream->invalidated = true;
      }
      if (invalidated) return kCaptureUnsupported;
    }
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
  int ExchangeCaptureMode(int* mode) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (const int error = Enter("cuThreadExchangeStreamCaptureMode", nullptr, &lock)) return error;
    std::swap(*mode, capture_mode);
    return kSuccess;
  }

 private:
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

  // What every function does first.
  int Enter(const char* function, const ContextState* context, std::unique_lock<std::mutex>* lock) {
    if (ended_.load(std::memory_order_acquire)) _exit(kUsedAfterItsEnd);
    ++calls_[function];
    if (callback_depth > 0) {
      const bool records = strcmp(function, "cuEventRecord") == 0;
      if (records) ++records_in_callbacks_;
      if (!records && strcmp(function, "cuStreamIsCapturing") != 0) ++forbidden_in_callbacks_;
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
int cuThreadExchangeStreamCaptureMode(int* mode) { return Driver().ExchangeCaptureMode(mode); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
