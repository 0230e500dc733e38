// A CUDA driver without a GPU: libcuda.so.1 as far as the plugin calls it, over simulated streams.
//
// A test loads it by path before the first init; the plugin's own dlopen("libcuda.so.1") then finds
// it by its soname. What NCCL and the application do to a GPU goes through FakeCuda; what the
// plugin does, through the exported cu* functions, and is counted and checked:
//
//   streams    work of a given duration, one after the other; events complete when all work before
//              them has. Time is the test's (Advance) and starts at 0.
//   capture    a stream may be in capture; recording an event into one is what the plugin must
//              never do. A query from a thread that has not relaxed its capture mode invalidates
//              every capture that is running, as the driver does in global mode. The legacy stream
//              is not looked at while another one is in capture (906).
//   graphs     what is launched into a capture becomes nodes of its graph, in the order of the
//              launches; a node may be put in front of all. Replay passes the stamps among them. A graph that is destroyed says so to
//              the user objects that it retained.
//   memory     allocations that are retained, mapped at further addresses, and copied to the host.
//   failures   any function may be told to fail or to block, a context may be destroyed (709) or
//              reset: its address then lives on, with other events. An event that is used after it
//              was destroyed is counted.
//   callbacks  calls that a thread makes within a callback of NCCL are counted apart.
//
// Thread: all functions any; one lock, which a blocked call does not hold.
#ifndef TESTS_PLUGIN_FAKE_CUDA_H_
#define TESTS_PLUGIN_FAKE_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace nccl_pulse {

class FakeCuda {
 public:
  static constexpr int kContextDestroyed = 709;  // CUDA_ERROR_CONTEXT_IS_DESTROYED
  static constexpr int kInvalidHandle = 400;     // CUDA_ERROR_INVALID_HANDLE
  static constexpr int kDeviceLost = 46;         // CUDA_ERROR_DEVICE_UNAVAILABLE
  static constexpr int kInvalidContext = 201;    // CUDA_ERROR_INVALID_CONTEXT
  static constexpr int kDeinitialized = 4;     // CUDA_ERROR_DEINITIALIZED, while the process exits
  static constexpr int kIllegalAddress = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS, of every call after it
  static constexpr int kCaptureUnsupported = 900;
  static constexpr int kCaptureImplicit = 906;  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
  static constexpr uint64_t kForever = UINT64_MAX;

  using Context = void*;
  using Stream = void*;

  virtual ~FakeCuda() = default;

  // ---- the GPU ----
  virtual void Advance(uint64_t ns) = 0;
  virtual Context CreateContext(int device) = 0;
  virtual void MakeCurrent(Context context) = 0;  // of this thread; null: none
  virtual void DestroyContext(Context context) = 0;
  // The same address is a new context afterwards, as a primary context is after a reset.
  virtual void ResetContext(Context context) = 0;
  virtual Stream CreateStream(Context context) = 0;
  // Handles 0, 1 (both the legacy stream) and 2 (the per-thread one, here one for all threads) are
  // streams of the thread's current context, wherever a stream is asked for.
  // Work that was enqueued goes on.
  virtual void DestroyStream(Stream stream) = 0;
  virtual void Launch(Stream stream, uint64_t duration_ns) = 0;
  // Later work of `stream` waits for all work of `other` so far.
  virtual void Wait(Stream stream, Stream other) = 0;
  // The work that hangs (kForever) ends now.
  virtual void Release(Stream stream) = 0;
  virtual void BeginCapture(Stream stream) = 0;
  // False: the capture was invalidated.
  virtual bool EndCapture(Stream stream) = 0;
  // What was captured since BeginCapture, the current capture included. Its nodes in their order:
  // 'k' a kernel, 's' a stamp.
  using Graph = void*;
  virtual Graph CapturedGraph(Stream stream) = 0;
  virtual std::string Nodes(Graph graph) = 0;
  // So many of the first nodes of what `stream` captures stand side by side; one unless told.
  virtual void SetRoots(Stream stream, size_t roots) = 0;
  // Passes the nodes from `first` on, so many of them.
  static constexpr uint64_t kAllNodes = UINT64_MAX;
  virtual void Replay(Graph graph, uint64_t first = 0, uint64_t count = kAllNodes) = 0;
  virtual void DestroyGraph(Graph graph) = 0;
  // An executable of the graph, for Replay and DestroyGraph: it holds the graph's user objects as well.
  virtual Graph Instantiate(Graph graph) = 0;
  // From now on `executable` runs what `graph` has, and holds its user objects instead. (CUDA Programming
  // Guide, "CUDA User Objects"; it releases those of before once what was launched has ended: here at once.)
  virtual void Update(Graph executable, Graph graph) = 0;
  // An event of the application's own.
  virtual void* CreateEvent(Context context) = 0;

  // ---- memory of the GPU, which is the host's ----
  // NCCL's, 2 MiB. `can_map`: an allocation that others may map, too.
  static constexpr size_t kMemoryBytes = 2 << 20;
  virtual char* AllocateMemory(bool can_map = true) = 0;
  // NCCL unmaps it: it stays while somebody has retained it.
  virtual void FreeMemory(char* memory) = 0;
  // Copies that are made are not seen to be done from now on, until they are let go.
  virtual void HoldCopies(bool hold) = 0;
  // From now on a copy is not seen to be done before it was asked for so often.
  virtual void SlowCopies(int queries) = 0;
  // Of memory that was not mapped, or from NCCL's own address.
  virtual uint64_t WrongCopies() = 0;
  // Retained or mapped by the plugin.
  virtual uint64_t MemoryHeld() = 0;

  // ---- failures ----
  // `function` as exported, "" for all. Null context: of any.
  virtual void Fail(const std::string& function, int error, Context context = nullptr) = 0;
  virtual void StopFailing() = 0;
  virtual void Block(const std::string& function) = 0;
  virtual bool IsBlocked() = 0;  // a thread is
  virtual void Unblock() = 0;
  // Registers a handler with atexit, as the driver does when it is first used. After it has run
  // there is no driver: a call ends the process with kUsedAfterItsEnd. It gives others some time to
  // make one.
  static constexpr int kUsedAfterItsEnd = 46;
  virtual void EndAtExit() = 0;

  // ---- callbacks of NCCL on this thread ----
  virtual void EnterCallback() = 0;
  virtual void LeaveCallback() = 0;

  // ---- what the plugin did ----
  virtual uint64_t Calls(const std::string& function = "") = 0;
  // From within callbacks: those allowed there, and all others.
  virtual uint64_t RecordsInCallbacks() = 0;
  virtual uint64_t ForbiddenInCallbacks() = 0;
  virtual uint64_t RecordsIntoCaptures() = 0;
  // Kernels of the plugin that were launched outside of a capture, in another context than the
  // current one, or before their code was brought to the GPU.
  virtual uint64_t WrongKernelLaunches() = 0;
  virtual uint64_t UsesOfDestroyedEvents() = 0;
  virtual uint64_t ForeignEventsDestroyed() = 0;  // made by CreateEvent
  virtual uint64_t EventsCreated() = 0;
  virtual int64_t EventsAlive() = 0;
};

// Exported by the library, under this name.
inline constexpr char kGetFakeCuda[] = "NcclPulseGetFakeCuda";
using GetFakeCuda = FakeCuda* (*)();

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_FAKE_CUDA_H_
