// What a test does to the GPU, how its work goes on, and what the plugin is seen to have done.
#include <algorithm>
#include <utility>

#include "tests/plugin/fake_cuda_simulation.h"

namespace nccl_pulse::fake_cuda {

void Simulation::Advance(uint64_t ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  now_ns_ += ns;
  Run();
}

FakeCuda::Context Simulation::CreateContext(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  contexts_.push_back(std::make_unique<ContextState>(ContextState{device, next_id_++}));
  return contexts_.back().get();
}

void Simulation::MakeCurrent(Context context) {
  current_context = static_cast<ContextState*>(context);
}

void Simulation::DestroyContext(Context context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  static_cast<ContextState*>(context)->destroyed = true;
  ForgetEvents(static_cast<ContextState*>(context));
}

void Simulation::ResetContext(Context context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ForgetEvents(static_cast<ContextState*>(context));
  static_cast<ContextState*>(context)->id = next_id_++;
}

FakeCuda::Stream Simulation::CreateStream(Context context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.push_back(std::make_unique<StreamState>());
  streams_.back()->context = static_cast<ContextState*>(context);
  live_streams_.insert(streams_.back().get());
  return streams_.back().get();
}

void Simulation::DestroyStream(Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_streams_.erase(stream);
}

void Simulation::Launch(Stream stream, uint64_t duration_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  StreamState& state = *Resolve(stream);
  if (!state.capturing) {
    Enqueue(state, duration_ns, nullptr);
  } else {
    state.graph->Add({nullptr, nullptr, 0});
  }
}

void Simulation::Wait(Stream stream, Stream other) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const StreamState& source = *Resolve(other);
  if (stream == other || source.last == nullptr) return;
  Enqueue(*Resolve(stream), 0, source.last);
}

void Simulation::Release(Stream stream) {
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

void Simulation::BeginCapture(Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto* state = static_cast<StreamState*>(stream);
  state->capturing = true;
  state->invalidated = false;
  state->capture_id = next_capture_++;
  graphs_.push_back(std::make_unique<GraphState>());
  state->graph = graphs_.back().get();
}

bool Simulation::EndCapture(Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  static_cast<StreamState*>(stream)->capturing = false;
  return !static_cast<StreamState*>(stream)->invalidated;
}

FakeCuda::Graph Simulation::CapturedGraph(Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<StreamState*>(stream)->graph;
}

std::string Simulation::Nodes(Graph graph) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string nodes;
  for (const auto& node : static_cast<GraphState*>(graph)->nodes) {
    nodes.push_back(node->stamp == nullptr ? 'k' : 's');
  }
  return nodes;
}

void Simulation::SetRoots(Stream stream, size_t roots) {
  const std::lock_guard<std::mutex> lock(mutex_);
  static_cast<StreamState*>(stream)->graph->roots = roots;
}

void Simulation::Replay(Graph graph, uint64_t first, uint64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto& nodes = static_cast<GraphState*>(graph)->nodes;
  for (uint64_t i = first; i < nodes.size() && i - first < count; ++i) {
    const GraphState::Node& node = *nodes[i];
    if (node.stamp == nullptr) continue;
    // Like the GPU's store: the count is there when the time is.
    __atomic_store_n(&node.place->gpu_ns, now_ns_ + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&node.place->passages, ++node.stamp->passages[node.number], __ATOMIC_RELEASE);
  }
}

void Simulation::DestroyGraph(Graph graph) {
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

FakeCuda::Graph Simulation::Instantiate(Graph graph) {
  const std::lock_guard<std::mutex> lock(mutex_);
  graphs_.push_back(std::make_unique<GraphState>());
  auto* executable = graphs_.back().get();
  executable->Copy(*static_cast<GraphState*>(graph));
  return executable;
}

void Simulation::Update(Graph executable, Graph graph) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (UserObject* object : static_cast<GraphState*>(graph)->objects) ++object->references;
  }
  DestroyGraph(executable);
  const std::lock_guard<std::mutex> lock(mutex_);
  static_cast<GraphState*>(executable)->Copy(*static_cast<GraphState*>(graph));
  for (UserObject* object : static_cast<GraphState*>(graph)->objects) --object->references;
}

void* Simulation::CreateEvent(Context context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return NewEvent(static_cast<ContextState*>(context), true, true);
}

void Simulation::Fail(const std::string& function, int error, Context context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  failures_.push_back({function, error, static_cast<ContextState*>(context)});
}

void Simulation::StopFailing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failures_.clear();
}

void Simulation::Block(const std::string& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocked_function_ = function;
}

bool Simulation::IsBlocked() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return blocked_threads_ > 0;
}

void Simulation::Unblock() {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocked_function_.clear();
  unblocked_.notify_all();
}

uint64_t Simulation::Calls(const std::string& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!function.empty()) return calls_[function];
  uint64_t sum = 0;
  for (const auto& [name, calls] : calls_) sum += calls;
  return sum;
}

int64_t Simulation::EventsAlive() {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t alive = 0;
  for (const auto& event : events_) {
    if (!event->foreign && !event->destroyed) ++alive;
  }
  return alive;
}

uint64_t Simulation::Read(const uint64_t& counter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counter;
}

StreamState* Simulation::ResolveLive(void* stream) {
  const bool dead = reinterpret_cast<uintptr_t>(stream) > 2 && live_streams_.count(stream) == 0;
  return dead ? nullptr : Resolve(stream);
}

StreamState* Simulation::Resolve(void* stream) {
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

void* Simulation::NewEvent(ContextState* context, bool timing, bool foreign) {
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

void Simulation::ForgetEvents(ContextState* context) {
  for (const auto& event : events_) {
    if (event->context != context || event->destroyed) continue;
    event->destroyed = true;
    freed_.push_back(event.get());
  }
}

Completion Simulation::Enqueue(StreamState& stream, uint64_t duration_ns, Completion after) {
  Completion done = NewCompletion();
  stream.queue.push_back({now_ns_, duration_ns, std::move(after), done});
  stream.last = done;
  Run();
  return done;
}

bool Simulation::IsDone(const Completion& completion) const {
  return completion->has_value() && **completion <= now_ns_;
}

void Simulation::Run() {
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

}  // namespace nccl_pulse::fake_cuda
