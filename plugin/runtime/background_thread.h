// Starts a background thread that blocks all signals and has enough stack.
//
// glibc puts thread-local variables on each thread's stack: those of libraries loaded at start, and
// of libraries linked for static TLS. That is normally kilobytes, in some jobs megabytes.
// pthread_create refuses a stack that is too small for them, but accepts a stack that leaves too
// little for the thread. So their size is added to the thread's own need.
//
// Thread: init. Errors: returns false if the kernel refuses.
#ifndef PLUGIN_RUNTIME_BACKGROUND_THREAD_H_
#define PLUGIN_RUNTIME_BACKGROUND_THREAD_H_

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>

namespace nccl_pulse {

// Returns the stack that a thread with these attributes needs before it runs its first function.
inline size_t StackBytesOfTheSystem(const pthread_attr_t& attributes) {
  // In glibc since 2.15. It is private to glibc, but run-time libraries of other languages also use
  // it.
  using GetMinimum = size_t (*)(const pthread_attr_t*);
  const auto get_minimum = reinterpret_cast<GetMinimum>(
      dlsym(RTLD_DEFAULT, "__pthread_get_minstack"));  // NOLINT(bugprone-reserved-identifier)
  const size_t least = PTHREAD_STACK_MIN;
  return get_minimum != nullptr ? std::max(get_minimum(&attributes), least) : least;
}

inline bool StartBackgroundThread(const char* name, void* (*run)(void*), void* argument) {
  constexpr size_t kStackBytes = size_t{256} * 1024;
  constexpr size_t kMemoryPage = 4096;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const size_t bytes = kStackBytes + StackBytesOfTheSystem(attributes);
  pthread_attr_setstacksize(&attributes, (bytes + kMemoryPage - 1) / kMemoryPage * kMemoryPage);
  // A thread inherits its creator's mask. Blocking before its creation lets no signal in.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int result = pthread_create(&thread, &attributes, run, argument);
  pthread_attr_t usual;
  if (result == EINVAL && pthread_attr_init(&usual) == 0) {
    // The needed size is not known. The default of the job's own threads is enough.
    pthread_attr_setdetachstate(&usual, PTHREAD_CREATE_DETACHED);
    result = pthread_create(&thread, &usual, run, argument);
    pthread_attr_destroy(&usual);
  }
  if (result == 0) pthread_setname_np(thread, name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return result == 0;
}

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_BACKGROUND_THREAD_H_
