// Runs a thread whose owner waits for its end only for a limited time. After that the thread runs
// on until the process ends. So owner and thread share a state, which derives from PatientThread.
//
// Thread: Start and Stop on the owner's, WaitUntil on the started one.
#ifndef EXPORTER_BASE_PATIENT_THREAD_H_
#define EXPORTER_BASE_PATIENT_THREAD_H_

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace nccl_pulse {

struct PatientThread {
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  bool is_stopping = false;
  bool has_ended = false;

  // Runs `run(*state)` on a new thread, with all signals blocked. Returns "", or why the system
  // refused the thread.
  template <typename State, typename Run>
  static std::string Start(const std::shared_ptr<State>& state, Run run) {
    // A new thread inherits this mask. It must not run a signal handler even once.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::string error;
    try {
      std::thread([state, run] {
        run(*state);
        const std::lock_guard<std::mutex> lock(state->mutex);
        state->has_ended = true;
        state->changed.notify_all();
      }).detach();
    } catch (const std::system_error& problem) {
      error = problem.what();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return error;
  }

  // Waits. Returns false as soon as Stop() is called.
  bool WaitUntil(std::chrono::steady_clock::time_point time) {
    std::unique_lock<std::mutex> lock(mutex);
    return !changed.wait_until(lock, time, [this] { return is_stopping; });
  }

  // Asks the thread to end, and waits. Returns false if it did not end in time.
  bool Stop(std::chrono::milliseconds patience) {
    std::unique_lock<std::mutex> lock(mutex);
    is_stopping = true;
    changed.notify_all();
    return changed.wait_for(lock, patience, [this] { return has_ended; });
  }
};

// Runs `work` on a new thread and waits for it. Returns 0, ETIMEDOUT if it takes longer than
// `patience` and runs on, or EAGAIN if the system refused the thread. `work` owns what it uses.
inline int RunWithin(std::chrono::milliseconds patience, std::function<void()> work) {
  const auto state = std::make_shared<PatientThread>();
  const auto run = [work = std::move(work)](PatientThread& /*unused*/) { work(); };
  if (!PatientThread::Start(state, run).empty()) return EAGAIN;
  return state->Stop(patience) ? 0 : ETIMEDOUT;
}

// As above, for work that may hang forever. Returns EBUSY, without running it, while `most` earlier
// ones run that share the counter `running`.
inline int RunWithin(std::chrono::milliseconds patience, std::atomic<int>* running, int most,
                     std::function<void()> work) {
  // Relaxed: the counter orders nothing else.
  const auto end = [running] { running->fetch_sub(1, std::memory_order_relaxed); };
  if (running->fetch_add(1, std::memory_order_relaxed) >= most) {
    end();
    return EBUSY;
  }
  const int late = RunWithin(patience, [end, work = std::move(work)] {
    work();
    end();
  });
  if (late == EAGAIN) end();
  return late;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_PATIENT_THREAD_H_
