#include "exporter/endpoint/server_thread.h"

#include <sched.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <exception>

#include "absl/strings/str_cat.h"
#include "exporter/node/error_text.h"
#include "exporter/node/shared_descriptor.h"

namespace nccl_pulse {
namespace {

// Large enough for reading snapshots, and for libraries that reserve thread-local memory on every
// thread's stack.
constexpr std::size_t kStackBytes = 1 << 20;
constexpr std::chrono::milliseconds kStopTimeout{2000};
constexpr std::chrono::milliseconds kGoodbyeTimeout{100};

}  // namespace

bool ServerThread::Start(std::string* error) {
  {
    const ForkGuard guard;
    for (EventFd* event : {&wake_, &ended_, &said_goodbye_}) {
      if (event->Open()) continue;
      *error = absl::StrCat("cannot open an eventfd: ", ErrorText(errno));
      return false;
    }
  }
  // A thread starts with its creator's mask, and must not run a signal handler even once.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  int result = pthread_create(&thread_, &attributes, &Main, this);
  // A job with very large thread-local variables: the stack size that its own threads get is
  // enough.
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
  said_goodbye_.Wait(kGoodbyeTimeout);
}

bool ServerThread::Stop() {
  stopping_.store(true, std::memory_order_release);
  wake_.Signal();
  const bool ended = ended_.Wait(kStopTimeout);
  // The one that sets it second knows that the other has gone on, and deletes the object.
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
  sched_setscheduler(0, SCHED_BATCH, &batch);  // of this thread; if it is refused, nothing changes
  thread->Run();
  if (thread->left_behind_.exchange(true, std::memory_order_acq_rel)) {
    delete thread;
    return nullptr;
  }
  // Stop() waits for this before it joins, and deletes only then.
  thread->ended_.Signal();
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
  if (left_ || !leaving_.load(std::memory_order_acquire)) return;
  left_ = true;
  loop_.SayGoodbye();
  said_goodbye_.Signal();
}

void ServerThread::CloseDescriptors() {
  loop_.CloseDescriptors();
  wake_.Close();
  ended_.Close();
  said_goodbye_.Close();
}

}  // namespace nccl_pulse
