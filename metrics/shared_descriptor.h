// SharedDescriptor is a file descriptor that the host process may close at any time.
//
// The job may close any number: it closes one twice, or all from 3 on to become a daemon. Its next
// file then gets our number. So the device and inode are stored with the descriptor and compared
// before each use. get() never returns, and Close() never closes, a reused number. A high number
// makes collisions rare. It is never 0 to 2, where the job prints.
//
// Callers need no branch for a lost descriptor: calls with -1 fail with EBADF, and poll(2) skips
// it. The nanoseconds between comparison and call remain a race. The file must be a socket, a file
// or memory: all eventfds share one inode.
//
// A process-wide table lists all open ones, so that the child of a fork closes them at once.
//
// Thread: one at a time changes it. Cost: one system call per get(); Set() makes a few and searches
// the table for a free entry.
#ifndef METRICS_SHARED_DESCRIPTOR_H_
#define METRICS_SHARED_DESCRIPTOR_H_

#include <sys/types.h>

#include <atomic>

namespace nccl_pulse {

// Identifies an open file independent of its number.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const FileIdentity& a, const FileIdentity& b) {
    return a.device == b.device && a.inode == b.inode;
  }
};

class SharedDescriptor {
 public:
  // Returns the number if it still refers to the file passed to Set; else -1.
  int get() const;
  // True if it was set and not closed; it may be lost.
  bool is_open() const { return fd_.load(std::memory_order_relaxed) >= 0; }
  // True if its number was closed or reused by the job.
  bool is_lost() const { return is_open() && get() < 0; }
  const FileIdentity& identity() const { return identity_; }

  // Takes over `fd`, which was just opened under a ForkGuard, and moves it to a high number, which
  // get() then returns. Closes `fd` if kMostOpen are open. Keeps errno.
  void Set(int fd);
  // Moves the descriptor here from `other`, which is then empty.
  void TakeFrom(SharedDescriptor* other);
  // Removes the number from the object and the table before closing it, never after.
  // Async-signal-safe.
  void Close();

  // In the child of a fork: closes every descriptor that the parent had open. The parent's objects
  // must not be used afterwards. Async-signal-safe.
  static void CloseAllInChild();
  // Limit of open descriptors per process.
  static constexpr int kMostOpen = 4096;

  // Returns the first number of this process that was found lost; -1 if none.
  static int FirstLost();

 private:
  // Relaxed: in the child there is one thread, and fork() has ordered everything before it.
  std::atomic<int> fd_{-1};
  int entry_ = 0;  // index in the table, while open
  FileIdentity identity_;
};

// ForkGuard is held from before a descriptor exists until a SharedDescriptor owns it, for
// microseconds. A child forked in between would keep a port, or another process' connection, open
// without knowing it. Only fork handlers take the same lock; no callback does.
//
// Meanwhile it occupies the free numbers among 0 to 2 with descriptors that refuse reads and
// writes. What the job prints must not go into a new socket, even for that moment.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  static void Lock();          // `prepare` of pthread_atfork
  static void Unlock();        // `parent`
  static void ResetInChild();  // `child`: async-signal-safe, whoever held it in the parent

 private:
  bool occupied_[3] = {};
};

}  // namespace nccl_pulse

#endif  // METRICS_SHARED_DESCRIPTOR_H_
