#include "plugin/runtime/poller.h"

#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <ctime>

#include "exporter/base/time.h"
#include "plugin/runtime/background_thread.h"
#include "plugin/runtime/unix_time.h"

namespace nccl_pulse {
namespace {

void Pause(int64_t ns) {
  // A relative pause: a step of the wall clock does not make it long.
  const timespec pause{0, static_cast<long>(ns)};
  nanosleep(&pause, nullptr);
}

}  // namespace

Poller Poller::all_[2];

bool Poller::Start(const char* name, const Work& work) {
  work_ = work;
  pid_.store(getpid(), std::memory_order_relaxed);    // published by the state
  state_.store(kPausing, std::memory_order_release);  // also publishes the work
  const auto run = [](void* poller) -> void* {
    static_cast<Poller*>(poller)->Run();
    return nullptr;
  };
  if (!StartBackgroundThread(name, run, this)) {
    state_.store(kAbsent, std::memory_order_relaxed);  // no other thread reads it yet
    return false;
  }
  // Registered once: a child of fork inherits the handler. If registering fails, exit does not
  // wait.
  static bool registered = false;
  if (!registered) registered = atexit(StopAtExit) == 0;
  return true;
}

void Poller::ForgetAfterFork() {
  // A child has one thread.
  for (Poller& poller : all_) poller.state_.store(kAbsent, std::memory_order_relaxed);
}

void Poller::Run() {
  // A locale of its own: the job may change the global one at any time (setlocale).
  uselocale(newlocale(LC_ALL_MASK, "C", nullptr));
  bool begun = false;
  while (true) {
    uint32_t expected = kPausing;
    // Acquire and release, here and below: the thread that stops this one has seen all of its last
    // round.
    if (!state_.compare_exchange_strong(expected, kInRound, std::memory_order_acq_rel)) break;
    if (!begun) work_.begin(work_.argument);
    begun = true;
    const int pause_ms = work_.round(work_.argument);
    expected = kInRound;
    if (!state_.compare_exchange_strong(expected, kPausing, std::memory_order_acq_rel)) {
      // exit waits for this, or has given up waiting.
      work_.stopped(work_.argument);
      state_.store(kStopped, std::memory_order_release);
      break;
    }
    Pause(RoundPauseNs(RealtimeNs(), pause_ms));
  }
}

void Poller::StopAtExit() {
  for (Poller& poller : all_) poller.Stop();
}

void Poller::Stop() {
  // A child that was made without fork's handlers (_Fork) does not have this thread.
  if (pid_.load(std::memory_order_relaxed) != getpid()) return;
  uint32_t state = state_.load(std::memory_order_acquire);
  while (state == kPausing || state == kInRound) {
    const uint32_t next = state == kPausing ? kStopped : kStopping;
    if (!state_.compare_exchange_weak(state, next, std::memory_order_acq_rel)) continue;
    if (next == kStopped) return work_.stopped(work_.argument);
    break;
  }
  for (int ms = 0; ms < kExitWaitMs && state_.load(std::memory_order_acquire) == kStopping; ++ms) {
    Pause(1000000);
  }
}

}  // namespace nccl_pulse
