#include "exporter/endpoint/server_thread.h"

#include <sched.h>

#include <cerrno>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstddef>
#include <exception>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/base/time.h"

namespace nccl_pulse {
namespace {

// Large enough for reading snapshots, and for libraries that reserve thread-local memory on every
// thread's stack.
constexpr std::size_t kStackBytes = 1 << 20;
constexpr std::chrono::milliseconds kStopTimeout{2000};
constexpr std::chrono::milliseconds kGoodbyeTimeout{100};

// Waits for the flag. Returns false after `patience`.
bool WaitUntil(const std::atomic<bool>& flag, std::chrono::milliseconds patience) {
  const auto give_up = MonotonicNow() + patience;
  while (!flag.load(std::memory_order_acquire)) {
    if (MonotonicNow() >= give_up) return false;
    Pause(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

bool ServerThread::Start(std::string* error) {
  if (!wake_.Open()) {
    *error = absl::StrCat("cannot open a pair of sockets: ", ErrorText(errno));
    return false;
  }
  // A new thread inherits this mask. It must not run a signal handler even once.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  int result = pthread_create(&thread_, &attributes, &Main, this);
  // The job has very large thread-local variables: the stack size of its own threads is enough.
  if (result == EINVAL) result = pthread_create(&thread_, nullptr, &Main, this);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (result != 0) {
    *error = absl::StrCat("cannot start a thread: ", ErrorText(result));
    return false;
  }
  pthread_setname_np(thread_, "pulse-http");
  return true;
}

void ServerThread::SayGoodbye() {
  leaving_.store(true, std::memory_order_release);
  wake_.Signal();
  WaitUntil(said_goodbye_, kGoodbyeTimeout);
}

bool ServerThread::Stop() {
  stopping_.store(true, std::memory_order_release);
  wake_.Signal();
  const bool ended = WaitUntil(ended_, kStopTimeout);
  // The thread that sets the flag second deletes the object: the first no longer uses it.
  if (!ended && !left_behind_.exchange(true, std::memory_order_acq_rel)) {
    pthread_detach(thread_);
    return false;
  }
  pthread_join(thread_, nullptr);
  return true;
}

void* ServerThread::Main(void* self) {
  auto* thread = static_cast<ServerThread*>(self);
  const sched_param batch{};
  sched_setscheduler(0, SCHED_BATCH, &batch);  // affects this thread only; has no effect if refused
  // Not the job's locale, which may change at any time (setlocale).
  uselocale(newlocale(LC_ALL_MASK, "C", nullptr));
  thread->Run();
  if (thread->left_behind_.exchange(true, std::memory_order_acq_rel)) {
    delete thread;
    return nullptr;
  }
  // Stop() waits for this before it joins, and deletes only then.
  thread->ended_.store(true, std::memory_order_release);
  return nullptr;
}

void ServerThread::Run() {
  while (!stopping_.load(std::memory_order_acquire)) {
    try {
      loop_.Round(wake_, [this] { SayGoodbyeIfAsked(); });
    } catch (const std::exception& e) {
      loop_.StartOver(e.what());
    } catch (...) {
      loop_.StartOver("unknown exception");
    }
  }
  loop_.Close();
}

void ServerThread::SayGoodbyeIfAsked() {
  if (!leaving_.load(std::memory_order_acquire)) return;
  if (said_goodbye_.load(std::memory_order_relaxed)) return;  // set by this thread only
  loop_.SayGoodbye();
  said_goodbye_.store(true, std::memory_order_release);
}

}  // namespace nccl_pulse
