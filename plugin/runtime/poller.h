// A background thread that makes rounds: who starts it, what it does between two pauses, and how it
// ends before the CUDA driver does. A process has two: "pulse-poll" follows launches, and
// "pulse-work" reads counters of finished work, so that a driver call of its own that does not
// return stops that part alone.
//
// exit() runs the atexit handlers in reverse order, and the driver's own are among them: a driver
// call after those finds no driver any more. So the first init registers a handler, too. CUDA had
// to be there before NCCL could call us, so ours was registered later and runs first.
//
//   kAbsent --> kPausing <-----> kInRound     the thread
//                   |                |
//                   |                v
//                   |            kStopping    exit, while a round is being made
//                   |                |
//                   v                v
//               kStopped         kStopped     no round begins any more
//
// exit does not wait for a thread that pauses. It waits at most kExitWaitMs for a round, which
// takes some 60 us as a rule. A round takes longer when it recycles a communicator with a busy
// lane, when the kernel is slow to give memory, or
// when a driver call does not return.
//
// Thread: Start under the runtime's lock; the handler from exit, without any lock. After a fork the
// child has no such threads, forgets them, and may start its own.
#ifndef PLUGIN_RUNTIME_POLLER_H_
#define PLUGIN_RUNTIME_POLLER_H_

#include <atomic>
#include <cstdint>

namespace nccl_pulse {

class Poller {
 public:
  static constexpr int kExitWaitMs = 200;

  struct Work {
    void (*begin)(void* argument);    // once, on the new thread
    int (*round)(void* argument);     // how many milliseconds to pause
    void (*stopped)(void* argument);  // no round will be made any more; from exit, or on the thread
    void* argument;
  };
  static Poller& Launches() { return all_[0]; }
  static Poller& Counters() { return all_[1]; }

  // Once in a process; `name` and `work` are kept. False when there is no thread to be had.
  bool Start(const char* name, const Work& work);
  // Forgets both. Async-signal-safe.
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
