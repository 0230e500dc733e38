// Poller runs a background thread in rounds with pauses between them, and stops it before the CUDA
// driver shuts down. A process has two: "pulse-poll" follows launches, "pulse-work" reads counters
// of finished work. If a driver call of "pulse-work" never returns, "pulse-poll" goes on.
//
// exit() runs the atexit handlers in reverse order. One of them is the CUDA driver's, after which
// no driver call may be made. So the first init registers a handler that stops the threads. CUDA
// was initialized before NCCL called the plugin, so the plugin's handler was registered later and
// runs first.
//
//   kAbsent --> kPausing <-----> kInRound     the thread
//                   |                |
//                   |                v
//                   |            kStopping    exit() during a round
//                   |                |
//                   v                v
//               kStopped         kStopped     no further round begins
//
// exit() does not wait for a pausing thread. It waits at most kExitWaitMs for a round. A round
// normally takes 60 us; longer if it recycles a communicator with a busy lane, if the kernel is
// slow to provide memory, or if a driver call does not return.
//
// Thread: Start under the runtime's lock; the handler runs in exit(), without a lock. A forked
// child does not have these threads, and may start its own.
#ifndef PLUGIN_RUNTIME_POLLER_H_
#define PLUGIN_RUNTIME_POLLER_H_

#include <atomic>
#include <cstdint>

namespace nccl_pulse {

class Poller {
 public:
  static constexpr int kExitWaitMs = 200;

  struct Work {
    void (*begin)(void* argument);    // called once, on the new thread
    int (*round)(void* argument);     // returns the pause in milliseconds
    void (*stopped)(void* argument);  // called after the last round, in exit() or on the thread
    void* argument;
  };
  static Poller& Launches() { return all_[0]; }  // "pulse-poll"
  static Poller& Counters() { return all_[1]; }  // "pulse-work"

  // Call once per process; keeps `name` and `work`. Returns false if the kernel refuses a thread.
  bool Start(const char* name, const Work& work);
  // Resets both pollers in a forked child. Async-signal-safe.
  static void ForgetAfterFork();

 private:
  enum State : uint32_t { kAbsent, kPausing, kInRound, kStopping, kStopped };
  static void StopAtExit();
  void Run();
  void Stop();

  static Poller all_[2];

  Work work_{};  // written before the state leaves kAbsent
  std::atomic<uint32_t> state_{kAbsent};
  std::atomic<int32_t> pid_{0};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_POLLER_H_
