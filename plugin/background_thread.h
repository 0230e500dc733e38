// Starts a thread that is no part of the job: it takes none of its signals and has a small stack.
// Thread: init. Errors: false when the kernel refuses.
#ifndef PLUGIN_BACKGROUND_THREAD_H_
#define PLUGIN_BACKGROUND_THREAD_H_

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <climits>

namespace nccl_pulse {

inline bool StartBackgroundThread(const char* name, void* (*run)(void*), void* argument) {
  constexpr size_t kStackBytes = 256 * 1024;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, std::max<size_t>(kStackBytes, PTHREAD_STACK_MIN));
  // A thread inherits its maker's mask: blocked before it exists, so that no signal finds it open.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, run, argument) == 0;
  if (started) pthread_setname_np(thread, name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_BACKGROUND_THREAD_H_
