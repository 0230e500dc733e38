#include "tests/plugin/hot_path_nets.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

using nccl_pulse::Counts;

// Constant from the start, and in the program itself: reading it needs no allocation.
thread_local Counts g_counts;

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes) {
  ++g_counts.allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++g_counts.allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  ++g_counts.allocations;
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ++g_counts.allocations;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++g_counts.allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  ++g_counts.allocations;
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* old) {
  if (old != nullptr) ++g_counts.allocations;
  __libc_free(old);
}

// The function of libc by that name, after counting it.
#define COUNTED(count, result, name, parameters, arguments)  \
  result name parameters {                                   \
    ++g_counts.count;                                        \
    static const auto next = Next<decltype(&(name))>(#name); \
    return next arguments;                                   \
  }

COUNTED(mappings, void*, mmap,
        (void* address, size_t bytes, int protection, int flags, int fd, off_t offset),
        (address, bytes, protection, flags, fd, offset))
COUNTED(mappings, int, munmap, (void* address, size_t bytes), (address, bytes))
COUNTED(mappings, int, madvise, (void* address, size_t bytes, int advice), (address, bytes, advice))
COUNTED(locks, int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
COUNTED(locks, int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))
COUNTED(locks, int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
COUNTED(locks, int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
COUNTED(waits, int, pthread_cond_signal, (pthread_cond_t * condition), (condition))
COUNTED(waits, int, pthread_cond_broadcast, (pthread_cond_t * condition), (condition))
COUNTED(waits, int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t* mutex),
        (condition, mutex))

long syscall(long number, ...) {
  ++g_counts.calls;
  static const auto next = Next<decltype(&syscall)>("syscall");
  va_list list;
  va_start(list, number);
  long argument[6];
  for (long& each : argument) each = va_arg(list, long);
  va_end(list);
  return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace nccl_pulse {
namespace {

// A trapped call ends the process, and says which it was. Only what a filter lets through is used.
void SayAndEnd(int /*signal*/, siginfo_t* info, void* /*context*/) {
  char text[] = "system call in a callback, number 0000\n";
  int number = info->si_syscall;
  for (int at = static_cast<int>(sizeof(text)) - 3; number > 0; number /= 10) {
    text[at--] = static_cast<char>('0' + number % 10);
  }
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, text, sizeof(text) - 1);
  _exit(kTrappedStatus);
}

}  // namespace

const Counts& CountsOfThisThread() { return g_counts; }

bool TrapSystemCalls(std::initializer_list<int> allowed) {
  struct sigaction action {};
  action.sa_sigaction = SayAndEnd;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  sock_filter program[32];
  unsigned short length = 0;
  program[length++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  const auto allow = [&](int number) {
    program[length++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1);
    program[length++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  };
  for (int number : {SYS_write, SYS_exit_group, SYS_rt_sigreturn, SYS_clock_gettime}) allow(number);
  for (int number : allowed) allow(number);
  program[length++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  const sock_fprog filter{length, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace nccl_pulse

#endif
