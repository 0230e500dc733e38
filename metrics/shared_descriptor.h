// A descriptor in a process that is not ours.
//
// The job may close any number at any time: it closes one twice, or all from 3 on to become a
// daemon. Its next file then has our number. So a descriptor is remembered with the device and
// inode of what it refers to, which are compared before each use: get() gives no number that has
// become somebody else's, and Close() closes none. To be hit rarely, it has a high number, and
// never one from 0 to 2, where the job prints.
//
// Whoever uses it needs no branch for a lost one: a call with -1 fails with EBADF, and poll(2)
// passes over it. Between the comparison and the call are some nanoseconds, which the kernel lets
// nobody close. What could be lost must be a socket, a file or memory: all eventfds share one
// inode.
//
// A table of the process has all that are open, so that the child of a fork closes them at once.
//
// Thread: one at a time changes it. Cost: one system call for each get(); Set() and Close() also go
// through the table, which is short.
#ifndef METRICS_SHARED_DESCRIPTOR_H_
#define METRICS_SHARED_DESCRIPTOR_H_

#include <sys/types.h>

#include <atomic>

namespace nccl_pulse {

// What an open file is, whatever number it has.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const FileIdentity& a, const FileIdentity& b) {
    return a.device == b.device && a.inode == b.inode;
  }
};

class SharedDescriptor {
 public:
  // The number, if it still refers to what was set; else -1.
  int get() const;
  // Whether it was set and not closed; it may be lost.
  bool is_open() const { return fd_.load(std::memory_order_relaxed) >= 0; }
  // Whether what was set is ours no longer.
  bool is_lost() const { return is_open() && get() < 0; }
  const FileIdentity& identity() const { return identity_; }

  // Takes over `fd`, which was just opened under a ForkGuard, and moves it up: its number is get()
  // from now on. Closes `fd` if kMostOpen are open. Keeps errno.
  void Set(int fd);
  // Leaves `other` empty.
  void TakeFrom(SharedDescriptor* other);
  // The number leaves the variable and the table before it is closed, never after. Async-signal-safe.
  void Close();

  // Closes, in the child of a fork, every descriptor that the parent had open. The parent's objects
  // must not be used afterwards. Async-signal-safe.
  static void CloseAllInChild();
  // How many can be open at once in a process.
  static constexpr int kMostOpen = 4096;

  // The first number that was found to be somebody else's, in this process; -1: none.
  static int FirstLost();

 private:
  // Relaxed: in the child there is one thread, and fork() has ordered everything before it.
  std::atomic<int> fd_{-1};
  int entry_ = 0;  // of the table, while it is open
  FileIdentity identity_;
};

// Held from before a descriptor exists until a SharedDescriptor has it, for microseconds: a child
// that is forked in between would keep a port, or another process' connection, open without knowing
// of it. Fork handlers take the same lock; nothing else does, no callback above all.
//
// Meanwhile it occupies those of the numbers from 0 to 2 that are free, by descriptors that refuse
// whatever is read or written, as none would: what the job prints must not go into a new socket,
// even for that moment.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  static void Lock();          // pthread_atfork's `prepare`
  static void Unlock();        // its `parent`
  static void ResetInChild();  // its `child`: async-signal-safe, whoever held it in the parent

 private:
  bool occupied_[3] = {};
};

}  // namespace nccl_pulse

#endif  // METRICS_SHARED_DESCRIPTOR_H_
