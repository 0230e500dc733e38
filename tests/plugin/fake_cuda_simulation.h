// The state of the CUDA driver without a GPU (fake_cuda.h): contexts, streams, events, graphs.
//
// fake_cuda_gpu.cc has what the test does to the GPU and how its work goes on, fake_cuda_calls.cc
// the driver's functions, fake_cuda_graphs.cc those of graphs, and fake_cuda.cc their names.
//
// Thread: any; one lock, which a blocked call does not hold.
#ifndef TESTS_PLUGIN_FAKE_CUDA_SIMULATION_H_
#define TESTS_PLUGIN_FAKE_CUDA_SIMULATION_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/plugin/fake_cuda.h"

namespace nccl_pulse::fake_cuda {

inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;
inline constexpr unsigned kDisableTiming = 2;
inline constexpr int kRelaxed = 2;

// When something on the GPU is done.
using Completion = std::shared_ptr<std::optional<uint64_t>>;
inline Completion NewCompletion() { return std::make_shared<std::optional<uint64_t>>(); }

// Memory of the GPU, 2 MiB, at NCCL's address.
struct MemoryState {
  std::unique_ptr<char[]> bytes;
  bool can_map;
  bool is_freed = false;
  uint64_t retained = 0;
};

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
  // It has no nodes yet.
  void Copy(const GraphState& other) {
    for (const auto& node : other.nodes) Add(*node);
    objects = other.objects;
    for (UserObject* object : objects) ++object->references;
  }
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

inline thread_local ContextState* current_context = nullptr;
inline thread_local int capture_mode = 0;  // global
inline thread_local int callback_depth = 0;

class Simulation final : public FakeCuda {
 public:
  Simulation();

  // ---- the GPU ----

  void Advance(uint64_t ns) override;

  Context CreateContext(int device) override;
  void MakeCurrent(Context context) override;
  void DestroyContext(Context context) override;
  void ResetContext(Context context) override;

  Stream CreateStream(Context context) override;
  void DestroyStream(Stream stream) override;

  void Launch(Stream stream, uint64_t duration_ns) override;
  void Wait(Stream stream, Stream other) override;
  void Release(Stream stream) override;

  void BeginCapture(Stream stream) override;
  bool EndCapture(Stream stream) override;

  Graph CapturedGraph(Stream stream) override;
  std::string Nodes(Graph graph) override;
  void SetRoots(Stream stream, size_t roots) override;
  void Replay(Graph graph, uint64_t first, uint64_t count) override;
  void DestroyGraph(Graph graph) override;
  Graph Instantiate(Graph graph) override;
  void Update(Graph executable, Graph graph) override;

  void* CreateEvent(Context context) override;

  // ---- memory: fake_cuda_memory.cc ----

  char* AllocateMemory(bool can_map) override;
  void FreeMemory(char* memory) override;
  void HoldCopies(bool hold) override;
  void SlowCopies(int queries) override;
  uint64_t WrongCopies() override { return Read(wrong_copies_); }
  uint64_t MemoryHeld() override;

  // ---- failures ----

  void Fail(const std::string& function, int error, Context context) override;
  void StopFailing() override;
  void Block(const std::string& function) override;
  bool IsBlocked() override;
  void Unblock() override;

  void EndAtExit() override;
  void End() { ended_.store(true, std::memory_order_release); }

  void EnterCallback() override { ++callback_depth; }
  void LeaveCallback() override { --callback_depth; }

  // ---- what the plugin did ----

  uint64_t Calls(const std::string& function) override;
  uint64_t RecordsInCallbacks() override { return Read(records_in_callbacks_); }
  uint64_t ForbiddenInCallbacks() override { return Read(forbidden_in_callbacks_); }
  uint64_t RecordsIntoCaptures() override { return Read(records_into_captures_); }
  uint64_t WrongKernelLaunches() override { return Read(wrong_kernel_launches_); }
  uint64_t UsesOfDestroyedEvents() override { return Read(uses_of_destroyed_); }
  uint64_t ForeignEventsDestroyed() override { return Read(foreign_destroyed_); }
  uint64_t EventsCreated() override { return Read(events_created_); }
  int64_t EventsAlive() override;

  // ---- the driver's functions ----

  int GetCurrent(void** context);
  int SetCurrent(void* context);
  int GetId(void* context, unsigned long long* id);
  int GetDevice(int* device);
  int Identify(const char* function);

  int EventCreate(void** event, unsigned flags);
  int EventDestroy(void* event);
  int EventRecord(void* event, void* stream);
  int EventQuery(void* event);
  int ElapsedTime(float* milliseconds, void* begin, void* end);
  int IsCapturing(void* stream, int* status);
  int CaptureInfo(void* stream, int* status, unsigned long long* id, void** graph);
  int ModuleLoadData(void** module, const void* image);
  int ModuleGetFunction(void** function, void* module, const char* name);
  int FuncGetAttribute(int* value, void* function);
  int HostRegister();
  int LaunchKernel(void* function, void* stream, void** parameters);
  int GraphGetRootNodes(void* graph, void** nodes, size_t* count);
  // Beside all that is there, until it is given an edge.
  int GraphAddKernelNode(void** node, void* graph, size_t dependencies, void* function,
                         void** parameters);
  // From the node that was added last to all roots.
  int GraphAddDependencies(void* graph, void* const* from, void* const* to, size_t count);
  int UserObjectCreate(void** object, void* argument, void (*destroy)(void*), unsigned references);
  int UserObjectRelease(void* object, unsigned references);
  int GraphRetainUserObject(void* graph, void* object);
  int ExchangeCaptureMode(int* mode);
  int PointerGetAttribute(void* value, uint64_t address);
  int GetAddressRange(uint64_t* base, size_t* bytes, uint64_t address);
  int RetainAllocation(uint64_t* allocation, uint64_t address);
  int ReleaseAllocation(uint64_t allocation);
  int ReserveAddresses(uint64_t* address, size_t bytes);
  int FreeAddresses(uint64_t address);
  int Map(uint64_t address, size_t bytes, uint64_t allocation);
  int Unmap(uint64_t address);
  int SetAccess();
  int HostAllocate(void** memory, size_t bytes);
  int StreamCreate(void** stream);
  int StreamQuery();
  int CopyToHost(void* to, uint64_t from, size_t bytes);

 private:
  // Null: no memory of the GPU's is there.
  MemoryState* MemoryAt(uint64_t address);
  // What a call that no capture allows does to those that run. True: there were some.
  bool InvalidateCapturesUnlessRelaxed();

  struct Failure {
    std::string function;
    int error;
    ContextState* context;
  };

  uint64_t Read(const uint64_t& counter);

  // Null: not a stream.
  StreamState* ResolveLive(void* stream);
  // Also one that was destroyed: its work goes on.
  StreamState* Resolve(void* stream);

  // Stamps are launched into captures alone, see LaunchKernel.
  static bool IsAllowedInCallback(const char* function);

  // What every function does first.
  int Enter(const char* function, const ContextState* context, std::unique_lock<std::mutex>* lock);

  // An address of an event that lives, or lived.
  int CheckEvent(void* event, EventState** state);
  int EnterEvent(const char* function, void* event, EventState** state,
                 std::unique_lock<std::mutex>* lock);

  void* NewEvent(ContextState* context, bool timing, bool foreign);
  // Those of a context that has gone.
  void ForgetEvents(ContextState* context);

  Completion Enqueue(StreamState& stream, uint64_t duration_ns, Completion after);
  bool IsDone(const Completion& completion) const;
  // Until nothing more happens by now.
  void Run();

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
  std::vector<std::unique_ptr<MemoryState>> memories_;
  std::map<uint64_t, MemoryState*> mappings_;  // by address; null: reserved alone
  uint64_t next_address_ = uint64_t{1} << 40;
  uint64_t wrong_copies_ = 0;
  bool holds_copies_ = false;
  int copy_queries_ = 0, copy_queries_left_ = 0;
};

Simulation& Driver();

}  // namespace nccl_pulse::fake_cuda

#endif  // TESTS_PLUGIN_FAKE_CUDA_SIMULATION_H_
