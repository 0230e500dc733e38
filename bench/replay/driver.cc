#include "bench/replay/driver.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/replay/profiler_library.h"
#include "bench/replay/recorded_clock.h"
#include "bench/replay/reduction.h"

namespace nccl_pulse {
namespace {

// Shorter waits are not worth a system call: the kernel's own slack is as long.
constexpr int64_t kShortestSleepNs = 50'000;
// Limits the delay of a stop request.
constexpr int64_t kLongestSleepNs = 50'000'000;

constexpr int kEventTypes = 15;

// Types whose handle is in memory that NCCL reuses without clearing.
constexpr uint32_t kReusedStorage =
    abi::kEventGroupApi | abi::kEventCollApi | abi::kEventP2pApi | abi::kEventProxyOp |
    abi::kEventProxyStep | abi::kEventProxyCtrl | abi::kEventKernelCh | abi::kEventNetPlugin;

// One mask per process, in static memory, as in NCCL. A plugin may write it at any time.
int g_event_mask = 0;

int BitIndex(uint32_t bit) { return __builtin_ctz(bit); }

class Driver {
 public:
  Driver(const Trace& trace, const ReplayOptions& options, ReplayProgress& progress,
         const std::atomic<bool>& stop)
      : trace_(trace),
        options_(options),
        progress_(progress),
        stop_(stop),
        own_pid_(getpid()),
        contexts_(trace.communicators.size()),
        handles_(trace.handles),
        parents_(trace.handles),
        masks_(trace.handles),
        threads_(trace.threads) {}

  bool Run(ReplayError* error) {
    if (options_.recorded_clock) recorded_clock::Start(trace_.events.front().t_ns);
    holder_ = trace_.events.front().thread;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < trace_.threads; ++i)
      threads.emplace_back([this, i] { ThreadMain(i); });
    for (std::thread& thread : threads) thread.join();
    // An interrupted repetition leaves communicators behind. An application would destroy them.
    for (uint32_t i = 0; i < contexts_.size(); ++i) {
      if (contexts_[i].alive) Finalize(i);
    }
    if (options_.recorded_clock) recorded_clock::RunOn();
    *error = error_;
    return error_.exit == kReplayDone;
  }

 private:
  struct Context {
    void* pointer = nullptr;
    bool alive = false;
  };
  struct ThreadState {
    std::condition_variable baton;
    std::array<void*, kEventTypes> last_handle{};  // by type
  };

  // Only the thread that holds the baton touches the fields below. The baton is handed over under
  // mutex_, which orders one holder's accesses before the next one's.

  void ThreadMain(uint32_t thread) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      threads_[thread].baton.wait(lock, [&] { return holder_ == thread || finished_; });
      if (finished_) return;
      lock.unlock();
      const bool more = RunBatch(thread);
      lock.lock();
      if (more) {
        holder_ = trace_.events[next_].thread;
        threads_[holder_].baton.notify_one();
      } else {
        finished_ = true;
        for (ThreadState& other : threads_) other.baton.notify_one();
      }
    }
  }

  // Makes callbacks until one of another thread is due (true) or the replay is over (false).
  bool RunBatch(uint32_t thread) {
    for (;;) {
      if (next_ == trace_.events.size() && !NextRepetition()) return false;
      const TraceEvent& event = trace_.events[next_];
      if (!IsDue(event)) {
        Advance();
        continue;
      }
      if (event.thread != thread) return true;
      if (!WaitUntil(event.t_ns)) return false;
      const int64_t shift_ns = static_cast<int64_t>(repetition_) * options_.period_ns;
      if (options_.recorded_clock) recorded_clock::Enter(event.t_ns + shift_ns);
      Execute(event);
      if (options_.recorded_clock) recorded_clock::Leave();
      if (error_.exit != kReplayDone) return false;
      Advance();
    }
  }

  bool NextRepetition() {
    ++repetition_;
    if (options_.repeat != 0 && repetition_ >= options_.repeat) return false;
    next_ = 0;
    // A new run of the application: no handle of the last run is known.
    std::fill(handles_.begin(), handles_.end(), nullptr);
    for (uint32_t i = 0; i < contexts_.size(); ++i) {
      if (contexts_[i].alive) Finalize(i);  // the recording had no finalize
    }
    return !stop_.load(std::memory_order_relaxed);
  }

  static uint32_t MaskNow() {
    return static_cast<uint32_t>(__atomic_load_n(&g_event_mask, __ATOMIC_RELAXED));
  }

  // Returns the mask that decides about this event. NCCL reads it when an operation is called and
  // keeps the value for everything of that operation, and for all replays of a CUDA graph.
  uint32_t MaskOf(const TraceEvent& event) const {
    constexpr uint32_t kOfAnOperation = abi::kEventColl | abi::kEventP2p | abi::kEventProxyOp |
                                        abi::kEventProxyStep | abi::kEventKernelCh |
                                        abi::kEventNetPlugin;
    if (event.callback == Callback::kInit || event.callback == Callback::kFinalize) return 0;
    if (event.callback != Callback::kStart) return masks_[event.handle];
    const bool inherits = (event.type & kOfAnOperation) != 0 && event.parent != 0;
    return inherits ? masks_[event.parent] : MaskNow();
  }

  void Advance() {
    const TraceEvent& event = trace_.events[next_];
    if (event.callback == Callback::kStart) masks_[event.handle] = MaskOf(event);
    ++next_;
    progress_.callbacks.store(progress_.callbacks.load(std::memory_order_relaxed) + 1,
                              std::memory_order_relaxed);
  }

  // True if NCCL would make this callback now.
  bool IsDue(const TraceEvent& event) const {
    if (event.callback == Callback::kInit) return !contexts_[event.context].alive;
    if (library_ == nullptr) return false;  // before the first init or after the last finalize
    if (!Delivered(event, MaskOf(event), library_->version())) return false;
    switch (event.callback) {
      case Callback::kStop:
        return handles_[event.handle] != nullptr || event.type == abi::kEventNetPlugin;
      case Callback::kState:
        if (event.type == abi::kEventNetPlugin) return true;
        if (event.type == abi::kEventProxyStep && handles_[parents_[event.handle]] == nullptr) {
          return false;
        }
        return handles_[event.handle] != nullptr;
      default:
        return true;
    }
  }

  void Execute(const TraceEvent& event) {
    switch (event.callback) {
      case Callback::kInit:
        Init(event.context);
        break;
      case Callback::kStart:
        Start(event);
        break;
      case Callback::kStop:
        library_->Stop(handles_[event.handle]);
        if (event.type == abi::kEventProxyOp) handles_[event.handle] = nullptr;
        break;
      case Callback::kState:
        library_->Record(handles_[event.handle], event);
        break;
      case Callback::kFinalize:
        if (event.context != TraceEvent::kNoContext) Finalize(event.context);
        break;
    }
    progress_.made.store(progress_.made.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  }

  void Init(uint32_t context) {
    if (library_ == nullptr) {
      library_ = ProfilerLibrary::Load(options_.library, options_.api, &error_);
      if (library_ == nullptr) return;
    }
    const TraceCommunicator& communicator = trace_.communicators[context];
    contexts_[context] = {nullptr, true};
    ++alive_;
    const int result = library_->Init(&contexts_[context].pointer, &g_event_mask, communicator,
                                      communicator.comm_id ^ repetition_, options_.logger);
    if (result != abi::kSuccess && options_.logger != nullptr) {
      options_.logger(abi::kLogWarn, abi::kSubsystemProfile, __FILE__, __LINE__,
                      "the plugin's init failed with %d", result);
    }
  }

  void Start(const TraceEvent& event) {
    void* context =
        event.context == TraceEvent::kNoContext ? nullptr : contexts_[event.context].pointer;
    void*& last = threads_[event.thread].last_handle[BitIndex(event.type)];
    void* handle = (event.type & kReusedStorage) != 0 ? last : nullptr;
    const bool operation = event.type == abi::kEventColl || event.type == abi::kEventP2p;
    int32_t pid = event.type == abi::kEventProxyOp ? event.proxy_op.pid : 0;
    if (pid == trace_.communicators.front().pid) pid = own_pid_;
    const TraceEvent* made = &event;
    TraceEvent renumbered;
    if (event.type == abi::kEventColl && (MaskNow() & abi::kEventKernelCh) == 0) {
      renumbered = event;
      renumbered.operation.seq_number = event.operation.seq_number_without_kernelch;
      made = &renumbered;
    }
    library_->Start(context, &handle, *made, handles_[event.parent],
                    operation ? handles_[event.operation.parent_group] : nullptr, pid);
    last = handle;
    handles_[event.handle] = handle;
    parents_[event.handle] = event.parent;
  }

  void Finalize(uint32_t context) {
    if (!contexts_[context].alive) return;
    if (contexts_[context].pointer != nullptr) library_->Finalize(contexts_[context].pointer);
    // Keeps the pointer: NCCL does make events with the context of a finalized communicator.
    contexts_[context].alive = false;
    if (--alive_ == 0) library_ = nullptr;
  }

  // Sleeps until the recorded time is due. False if the replay must stop.
  bool WaitUntil(int64_t t_ns) {
    const double recorded_ns =
        static_cast<double>(std::max<int64_t>(t_ns - options_.first_ns, 0)) +
        static_cast<double>(repetition_) * static_cast<double>(options_.period_ns);
    while (!stop_.load(std::memory_order_relaxed)) {
      if (options_.speed <= 0) return true;
      const int64_t due_ns = options_.start_ns + static_cast<int64_t>(recorded_ns / options_.speed);
      const int64_t left_ns = due_ns - recorded_clock::RealNow();
      if (left_ns < kShortestSleepNs) return true;
      const timespec pause = {0, std::min(left_ns, kLongestSleepNs)};
      nanosleep(&pause, nullptr);
    }
    return false;
  }

  const Trace& trace_;
  const ReplayOptions& options_;
  ReplayProgress& progress_;
  const std::atomic<bool>& stop_;
  const int32_t own_pid_;

  std::mutex mutex_;
  uint32_t holder_ = 0;    // guarded by mutex_
  bool finished_ = false;  // guarded by mutex_

  size_t next_ = 0;  // index of the next event
  uint64_t repetition_ = 0;
  ReplayError error_;
  std::unique_ptr<ProfilerLibrary> library_;
  int alive_ = 0;  // communicators between init and finalize
  std::vector<Context> contexts_;
  std::vector<void*> handles_;     // [0] is NULL
  std::vector<uint32_t> parents_;  // handle -> its parent
  std::vector<uint32_t> masks_;    // handle -> its mask
  std::vector<ThreadState> threads_;
};

}  // namespace

bool Replay(const Trace& trace, const ReplayOptions& options, ReplayProgress& progress,
            const std::atomic<bool>& stop, ReplayError* error) {
  return Driver(trace, options, progress, stop).Run(error);
}

}  // namespace nccl_pulse
