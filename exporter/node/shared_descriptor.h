// A descriptor that the child of a fork can find and close.
//
// Thread: one at a time changes it; the child of a fork, which has one thread, may close its copy.
#ifndef EXPORTER_NODE_SHARED_DESCRIPTOR_H_
#define EXPORTER_NODE_SHARED_DESCRIPTOR_H_

#include <unistd.h>

#include <atomic>

namespace nccl_pulse {

// Closed exactly once, by the server's thread or, after a fork, by the child in its own copy. It
// leaves the variable before it is closed, never after: between the two the number may already be
// another thread's new file.
class SharedDescriptor {
 public:
  // Relaxed: in the child there is one thread, and fork() has ordered everything before it.
  int get() const { return fd_.load(std::memory_order_relaxed); }
  void Set(int fd) { fd_.store(fd, std::memory_order_relaxed); }
  int Release() { return fd_.exchange(-1, std::memory_order_relaxed); }
  void Close() {
    const int fd = Release();
    if (fd >= 0) close(fd);
  }

 private:
  std::atomic<int> fd_{-1};
};

// Held from before a descriptor exists until a SharedDescriptor has it, for microseconds: a child
// that is forked in between would keep a port, or another process' connection, open without knowing
// of it. Fork handlers take the same lock; nothing else does, no callback above all.
class ForkGuard {
 public:
  ForkGuard() { Lock(); }
  ~ForkGuard() { Unlock(); }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  static void Lock();          // pthread_atfork's `prepare`
  static void Unlock();        // its `parent`
  static void ResetInChild();  // its `child`: async-signal-safe, whoever held it in the parent
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_SHARED_DESCRIPTOR_H_
